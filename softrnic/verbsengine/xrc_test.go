package verbsengine

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// XRC by the verbs: what belongs to another context is refused, and Close destroys everything.
func TestXRC(t *testing.T) {
	ctx, other := New(newFake(t)), New(newFake(t))
	o, foreign := newObjects(t, ctx), newObjects(t, other)
	x, err := ctx.AllocXRCD()
	if err != nil {
		t.Fatal(err)
	}
	srq := func(pd verbs.PD, init verbs.SRQInit) error { _, err := pd.CreateSRQ(init); return err }
	wantErr(t, "foreign domain", srq(foreign.pd, verbs.SRQInit{XRCD: x, CQ: foreign.cq}), verbs.ErrInvalid)
	wantErr(t, "foreign queue", srq(o.pd, verbs.SRQInit{XRCD: x, CQ: foreign.cq}), verbs.ErrInvalid)
	wantErr(t, "no queue", srq(o.pd, verbs.SRQInit{XRCD: x}), verbs.ErrInvalid)
	wantErr(t, "no domain", srq(o.pd, verbs.SRQInit{CQ: o.cq}), verbs.ErrInvalid)
	if err := srq(o.pd, verbs.SRQInit{XRCD: x, CQ: o.cq}); err != nil {
		t.Fatal(err)
	}
	target, err := x.CreateTarget(verbs.QPInit{Type: verbs.XRCTarget})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.pd.CreateQP(verbs.QPInit{Type: verbs.XRCInitiator, SendCQ: o.cq}); err != nil {
		t.Fatal(err)
	}
	if a, err := target.Query(); err != nil || a.Type != verbs.XRCTarget || a.QPN != target.QPN() {
		t.Errorf("%+v, %v", a, err)
	}
	wantErr(t, "in use", x.Dealloc(), verbs.ErrBusy)
	spare, err := ctx.AllocXRCD()
	if err != nil {
		t.Fatal(err)
	}
	if err := spare.Dealloc(); err != nil {
		t.Fatal(err)
	}
	if err := ctx.Close(); err != nil {
		t.Error(err)
	}
	wantErr(t, "after close", x.Dealloc(), verbs.ErrClosed)
	_, err = ctx.AllocXRCD()
	wantErr(t, "domain after close", err, verbs.ErrClosed)
}

// What a context makes through a handle of another one's domain ends with the context, the domain does not.
func TestSharedXRCD(t *testing.T) {
	shell := newFake(t)
	base, ctx := New(shell), New(shell)
	x, err := base.AllocXRCD()
	if err != nil {
		t.Fatal(err)
	}
	_, err = ctx.ShareXRCD(nil)
	wantErr(t, "no domain", err, verbs.ErrInvalid)
	shared := func() verbs.XRCD {
		t.Helper()
		h, err := ctx.ShareXRCD(x)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	o, h, spare := newObjects(t, ctx), shared(), shared()
	srq, err := o.pd.CreateSRQ(verbs.SRQInit{XRCD: h, CQ: o.cq})
	if err != nil {
		t.Fatal(err)
	}
	wantErr(t, "a queue of the handle", h.Dealloc(), verbs.ErrBusy)
	wantErr(t, "a queue of another context", x.Dealloc(), verbs.ErrBusy)
	if err := spare.Dealloc(); err != nil {
		t.Errorf("a handle without objects: %v", err)
	}
	if err := srq.Destroy(); err != nil {
		t.Fatal(err)
	}
	target, err := h.CreateTarget(verbs.QPInit{Type: verbs.XRCTarget})
	if err != nil {
		t.Fatal(err)
	}
	wantErr(t, "a target of the handle", h.Dealloc(), verbs.ErrBusy)
	if err := target.Destroy(); err != nil {
		t.Fatal(err)
	}
	if _, err := o.pd.CreateSRQ(verbs.SRQInit{XRCD: h, CQ: o.cq}); err != nil {
		t.Fatal(err)
	}
	if err := ctx.Close(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "a handle after close", h.Dealloc(), verbs.ErrClosed)
	_, err = ctx.ShareXRCD(x)
	wantErr(t, "a domain for a closed context", err, verbs.ErrClosed)
	if n := shell.e.Tables.Objects().XRCDs; n != 1 {
		t.Errorf("%d domains", n)
	}
	if err := x.Dealloc(); err != nil {
		t.Error(err)
	}
	if err := base.Close(); err != nil {
		t.Error(err)
	}
}
