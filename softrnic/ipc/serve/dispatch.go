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
	do    func(c *client, args json.RawMessage) (result any, fds []int, err error)
}

// part is the receiver type of a handler's method: the client itself, or one of its parts, which
// executes the request.
type part interface {
	*client | memories | queues | *connections
}

func partOf[P part](c *client) (p P) {
	switch p := any(&p).(type) {
	case **client:
		*p = c
	case *memories:
		*p = memories{c}
	case *queues:
		*p = queues{c}
	case **connections:
		*p = &c.conns
	}
	return p
}

// handle makes a handler of a method with arguments of type A.
func handle[P part, A any](f func(p P, a A) (any, []int, error)) handler {
	return handler{do: func(c *client, args json.RawMessage) (any, []int, error) {
		var a A
		if len(args) > 0 {
			if err := strict(args, &a); err != nil {
				return nil, nil, &verbs.OpError{Op: "request", Err: verbs.ErrInvalid, Detail: err.Error()}
			}
		}
		return f(partOf[P](c), a)
	}}
}

// plain makes a handler of a method with arguments of type A that returns no file descriptors.
func plain[P part, A any](f func(p P, a A) (any, error)) handler {
	return handle(func(p P, a A) (any, []int, error) {
		r, err := f(p, a)
		return r, nil, err
	})
}

// waiting does what plain does, for a method that may wait.
func waiting[P part, A any](f func(p P, a A) (any, error)) handler {
	h := plain(f)
	h.waits = true
	return h
}

// handlers has the handler of each kind of request that an application may send after its hello.
var handlers map[proto.Op]handler

func init() { // a composite literal at the declaration would be an initialization cycle
	handlers = map[proto.Op]handler{
		proto.OpProgress: plain((*client).progress),
		proto.OpShare:    handle((*client).share), proto.OpUnshare: plain((*client).unshare),

		proto.OpAllocPD: plain(memories.allocPD), proto.OpDeallocPD: plain(memories.deallocPD),
		proto.OpAlloc: handle(memories.alloc), proto.OpFree: plain(memories.free),
		proto.OpRegMR: handle(memories.regMR), proto.OpReregMR: plain(memories.reregMR), proto.OpDeregMR: plain(memories.deregMR), proto.OpAccessMR: plain(memories.accessMR),
		proto.OpAllocMW: plain(memories.allocMW), proto.OpQueryMW: plain(memories.queryMW), proto.OpDeallocMW: plain(memories.deallocMW),
		proto.OpAllocDM: plain(memories.allocDM), proto.OpAccessDM: plain(memories.accessDM), proto.OpRegDM: plain(memories.regDM),
		proto.OpFreeDM: plain(memories.freeDM),

		proto.OpCreateCQ: handle(queues.createCQ), proto.OpResizeCQ: plain(queues.resizeCQ), proto.OpModerateCQ: plain(queues.moderateCQ),
		proto.OpDestroyCQ: plain(queues.destroyCQ), proto.OpCountCQ: plain(queues.countCQ),
		proto.OpUseRing: plain(queues.useRing), proto.OpDoorbell: plain(queues.doorbell),
		proto.OpCreateSRQ: handle(queues.createSRQ), proto.OpQuerySRQ: plain(queues.querySRQ), proto.OpLimitSRQ: plain(queues.limitSRQ),
		proto.OpResizeSRQ: plain(queues.resizeSRQ), proto.OpDestroySRQ: plain(queues.destroySRQ),
		proto.OpCreateAH: plain(queues.createAH), proto.OpDestroyAH: plain(queues.destroyAH),
		proto.OpCreateQP: handle(queues.createQP), proto.OpQueryQP: plain(queues.queryQP), proto.OpModifyQP: plain(queues.modifyQP),
		proto.OpDestroyQP: plain(queues.destroyQP), proto.OpAttach: plain(queues.attachMulticast), proto.OpDetach: plain(queues.detachMulticast),

		proto.OpDial: waiting((*connections).dial), proto.OpListen: plain((*connections).listen), proto.OpUnlisten: plain((*connections).unlisten),
		proto.OpNextRequest: waiting((*connections).nextRequest), proto.OpAccept: waiting((*connections).accept), proto.OpReject: plain((*connections).reject),
		proto.OpDisconnect: waiting((*connections).disconnect), proto.OpDisconnected: waiting((*connections).disconnected),
		proto.OpCloseManager: plain((*connections).closeManager),
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
	h, ok := handlers[req.Op]
	if !ok {
		return c.answer(req.ID, nil, nil, fmt.Errorf("%w: operation %.40q", verbs.ErrNotSupported, string(req.Op)))
	}
	if !h.waits {
		result, fds, err := h.do(c, req.Args)
		return c.answer(req.ID, result, fds, err)
	}
	if err := c.calls.begin(string(req.Op), req.ID); errors.Is(err, verbs.ErrLimit) {
		return c.answer(req.ID, nil, nil, err)
	} else if err != nil {
		return err
	}
	args := bytes.Clone(req.Args) // the next message reuses the buffer
	c.tasks.Go(func() {
		result, fds, err := h.do(c, args)
		c.calls.waited()
		_ = c.answer(req.ID, result, fds, err) // fails when the application has ended
		c.calls.end(req.ID)                    // after the answer is queued: see proto.Progress
	})
	return nil
}

// progress reports whether a request is being executed. Applications ask this to decide whether to
// go on waiting for an answer. progress first waits for exclusive use of the engine, so its answer
// also shows that the NIC responds.
func (c *client) progress(a proto.Progress) (any, error) {
	c.s.pump.with(func(*engine.Engine) {})
	return proto.Progress{ID: a.ID, Working: c.calls.inWork(a.ID)}, nil
}

func eventMessage(ev verbs.AsyncEvent) ([]byte, error) { return json.Marshal(proto.Reply{Event: &ev}) }
