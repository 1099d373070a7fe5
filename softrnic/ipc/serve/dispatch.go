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

// handler does what a request asks for. The file descriptors go with the answer.
type handler struct {
	// waits says that it may wait, and so runs in a goroutine of its own.
	waits bool
	do    func(c *client, args json.RawMessage) (result any, fds []int, err error)
}

// handle makes a handler that takes arguments of type A.
func handle[A any](f func(c *client, a A) (any, []int, error)) handler {
	return handler{do: func(c *client, args json.RawMessage) (any, []int, error) {
		var a A
		if len(args) > 0 {
			if err := strict(args, &a); err != nil {
				return nil, nil, &verbs.OpError{Op: "request", Err: verbs.ErrInvalid, Detail: err.Error()}
			}
		}
		return f(c, a)
	}}
}

// plain is handle for what returns no file descriptors.
func plain[A any](f func(c *client, a A) (any, error)) handler {
	return handle(func(c *client, a A) (any, []int, error) {
		r, err := f(c, a)
		return r, nil, err
	})
}

// waiting is plain for what may wait.
func waiting[A any](f func(c *client, a A) (any, error)) handler {
	h := plain(f)
	h.waits = true
	return h
}

// handlers are the requests behind the hello.
var handlers map[proto.Op]handler

func init() { // an initializer would refer to itself
	handlers = map[proto.Op]handler{
		proto.OpAllocPD: plain((*client).allocPD), proto.OpDeallocPD: plain((*client).deallocPD),
		proto.OpAlloc: handle((*client).alloc), proto.OpFree: plain((*client).free),
		proto.OpRegMR: handle((*client).regMR), proto.OpDeregMR: plain((*client).deregMR), proto.OpAccessMR: plain((*client).accessMR),
		proto.OpAllocMW: plain((*client).allocMW), proto.OpQueryMW: plain((*client).queryMW), proto.OpDeallocMW: plain((*client).deallocMW),
		proto.OpAllocDM: plain((*client).allocDM), proto.OpAccessDM: plain((*client).accessDM), proto.OpRegDM: plain((*client).regDM),
		proto.OpFreeDM:   plain((*client).freeDM),
		proto.OpCreateCQ: handle((*client).createCQ), proto.OpDestroyCQ: plain((*client).destroyCQ),
		proto.OpCreateSRQ: handle((*client).createSRQ), proto.OpQuerySRQ: plain((*client).querySRQ), proto.OpLimitSRQ: plain((*client).limitSRQ),
		proto.OpDestroySRQ: plain((*client).destroySRQ),
		proto.OpCreateAH:   plain((*client).createAH), proto.OpDestroyAH: plain((*client).destroyAH),
		proto.OpCreateQP: handle((*client).createQP), proto.OpQueryQP: plain((*client).queryQP), proto.OpModifyQP: plain((*client).modifyQP),
		proto.OpDestroyQP: plain((*client).destroyQP),
		proto.OpShare:     handle((*client).share), proto.OpUnshare: plain((*client).unshare),
		proto.OpDial: waiting((*client).dial), proto.OpListen: plain((*client).listen), proto.OpUnlisten: plain((*client).unlisten),
		proto.OpNextRequest: waiting((*client).nextRequest), proto.OpAccept: waiting((*client).accept), proto.OpReject: plain((*client).reject),
		proto.OpDisconnect: waiting((*client).disconnect), proto.OpDisconnected: waiting((*client).disconnected),
		proto.OpCloseManager: plain((*client).closeManager), proto.OpClose: plain((*client).closeContext),
		proto.OpProgress: plain((*client).progress),
	}
}

// strict decodes exactly one value without unknown fields.
func strict(b []byte, out any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(out); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the value")
	}
	return nil
}

// dispatch does one request. Its error ends the connection; what is wrong with the request is answered.
func (c *client) dispatch(req proto.Request) error {
	h, ok := handlers[req.Op]
	if !ok {
		return c.answer(req.ID, nil, nil, fmt.Errorf("%w: operation %.40q", verbs.ErrNotSupported, string(req.Op)))
	}
	if !h.waits {
		result, fds, err := h.do(c, req.Args)
		return c.answer(req.ID, result, fds, err)
	}
	c.mu.Lock()
	// Those whose answers are not read count when there are more than a queue of answers takes: then this goroutine waits, too.
	full := c.waits >= c.s.cfg.Limits.Waits || len(c.working) >= c.s.cfg.Limits.Waits+maxOutgoing
	_, twice := c.working[req.ID]
	if !full && !twice {
		c.waits++
		c.working[req.ID] = struct{}{}
	}
	c.mu.Unlock()
	if twice {
		return errors.New("malformed message: an ID that a request has which is not answered yet")
	}
	if full {
		return c.answer(req.ID, nil, nil, limitError(string(req.Op), "%d calls wait at the same time", c.s.cfg.Limits.Waits))
	}
	args := bytes.Clone(req.Args) // the buffer is the next message's
	c.tasks.Go(func() {
		result, fds, err := h.do(c, args)
		c.mu.Lock()
		c.waits--
		c.mu.Unlock()
		_ = c.answer(req.ID, result, fds, err) // who has gone needs none
		c.mu.Lock()
		delete(c.working, req.ID) // behind the answer: see proto.Progress
		c.mu.Unlock()
	})
	return nil
}

// progress says whether a request is being worked on. That the NIC is at hand is a part of the answer: who asks wants to know
// whether waiting has any use.
func (c *client) progress(a proto.Progress) (any, error) {
	c.s.with(func(*engine.Engine) {})
	c.mu.Lock()
	defer c.mu.Unlock()
	_, working := c.working[a.ID]
	return proto.Progress{ID: a.ID, Working: working}, nil
}

// eventMessage is the message for an asynchronous event.
func eventMessage(ev verbs.AsyncEvent) ([]byte, error) { return json.Marshal(proto.Reply{Event: &ev}) }
