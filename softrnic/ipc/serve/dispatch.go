package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// handler executes one kind of request. The file descriptors that the function `do` returns are
// sent with the answer.
type handler struct {
	// waits: the handler may wait, so it runs in a goroutine of its own.
	waits bool
	do    func(args json.RawMessage) (result any, fds []int, err error)
}

// handle makes a handler of a function with arguments of type A.
func handle[A any](f func(a A) (any, []int, error)) handler {
	return handler{do: func(args json.RawMessage) (any, []int, error) {
		var a A
		if len(args) > 0 {
			if err := strict(args, &a); err != nil {
				return nil, nil, &verbs.OpError{Op: "request", Err: verbs.ErrInvalid, Detail: err.Error()}
			}
		}
		return f(a)
	}}
}

// plain makes a handler of a function with arguments of type A that returns no file descriptors.
func plain[A any](f func(a A) (any, error)) handler {
	return handle(func(a A) (any, []int, error) {
		r, err := f(a)
		return r, nil, err
	})
}

// waiting does what plain does, for a function that may wait.
func waiting[A any](f func(a A) (any, error)) handler {
	h := plain(f)
	h.waits = true
	return h
}

// handlersOf returns the handler of each kind of request that an application may send after its hello.
func handlersOf(m memories, q queues, x *connections, c *client) map[proto.Op]handler {
	return map[proto.Op]handler{
		proto.OpProgress: plain(c.progress),
		proto.OpShare:    handle(c.share), proto.OpUnshare: plain(c.unshare),

		proto.OpAllocPD: plain(m.allocPD), proto.OpDeallocPD: plain(m.deallocPD),
		proto.OpAlloc: handle(m.alloc), proto.OpFree: plain(m.free),
		proto.OpRegMR: handle(m.regMR), proto.OpReregMR: plain(m.reregMR), proto.OpDeregMR: plain(m.deregMR), proto.OpAccessMR: plain(m.accessMR),
		proto.OpAllocMW: plain(m.allocMW), proto.OpQueryMW: plain(m.queryMW), proto.OpDeallocMW: plain(m.deallocMW),
		proto.OpAllocDM: plain(m.allocDM), proto.OpAccessDM: plain(m.accessDM), proto.OpRegDM: plain(m.regDM),
		proto.OpFreeDM: plain(m.freeDM),

		proto.OpCreateCQ: handle(q.createCQ), proto.OpResizeCQ: plain(q.resizeCQ), proto.OpModerateCQ: plain(q.moderateCQ),
		proto.OpDestroyCQ: plain(q.destroyCQ), proto.OpCountCQ: plain(q.countCQ),
		proto.OpUseRing: plain(q.useRing), proto.OpDoorbell: plain(q.doorbell),
		proto.OpCreateSRQ: handle(q.createSRQ), proto.OpQuerySRQ: plain(q.querySRQ), proto.OpLimitSRQ: plain(q.limitSRQ),
		proto.OpResizeSRQ: plain(q.resizeSRQ), proto.OpDestroySRQ: plain(q.destroySRQ),
		proto.OpCreateAH: plain(q.createAH), proto.OpDestroyAH: plain(q.destroyAH),
		proto.OpCreateQP: handle(q.createQP), proto.OpQueryQP: plain(q.queryQP), proto.OpModifyQP: plain(q.modifyQP),
		proto.OpDestroyQP: plain(q.destroyQP), proto.OpAttach: plain(q.attachMulticast), proto.OpDetach: plain(q.detachMulticast),

		proto.OpDial: waiting(x.dial), proto.OpListen: plain(x.listen), proto.OpUnlisten: plain(x.unlisten),
		proto.OpNextRequest: waiting(x.nextRequest), proto.OpAccept: waiting(x.accept), proto.OpReject: plain(x.reject),
		proto.OpDisconnect: waiting(x.disconnect), proto.OpDisconnected: waiting(x.disconnected),
		proto.OpCloseManager: plain(x.closeManager),
	}
}

// strict decodes exactly one JSON value and refuses unknown fields.
func strict(b []byte, out any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(out); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("bytes follow the value")
	}
	return nil
}

// dispatch executes one request. An error of the request goes into the answer; an error that
// dispatch returns ends the connection.
func (c *client) dispatch(req proto.Request) error {
	h, ok := c.execute.handlers[req.Op]
	if !ok {
		return c.answer(req.ID, nil, nil, fmt.Errorf("%w: operation %.40q", verbs.ErrNotSupported, string(req.Op)))
	}
	if !h.waits {
		result, fds, err := h.do(req.Args)
		return c.answer(req.ID, result, fds, err)
	}
	if err := c.execute.calls.begin(string(req.Op), req.ID); errors.Is(err, verbs.ErrLimit) {
		return c.answer(req.ID, nil, nil, err)
	} else if err != nil {
		return err
	}
	args := bytes.Clone(req.Args) // the next message reuses the buffer
	c.tasks.Go(func() {
		result, fds, err := h.do(args)
		c.execute.calls.waited()
		_ = c.answer(req.ID, result, fds, err) // fails when the application has ended
		c.execute.calls.end(req.ID)            // after the answer is queued: see proto.Progress
	})
	return nil
}

// progress reports whether a request is being executed. Applications ask this to decide whether to
// go on waiting for an answer. progress first waits for exclusive use of the engine, so its answer
// also shows that the NIC responds.
func (c *client) progress(a proto.Progress) (any, error) {
	c.s.pump.with(func(*engine.Engine) {})
	return proto.Progress{ID: a.ID, Working: c.execute.calls.inWork(a.ID)}, nil
}

func eventMessage(ev verbs.AsyncEvent) ([]byte, error) { return json.Marshal(proto.Reply{Event: &ev}) }
