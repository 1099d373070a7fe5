package verbsengine

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A shared receive queue, used through the verbs; Close destroys it.
func TestSharedReceiveQueue(t *testing.T) {
	ctx, other := New(newFake(t)), New(newFake(t))
	o, foreign := newObjects(t, ctx), newObjects(t, other)
	s, err := o.pd.CreateSRQ(verbs.SRQInit{MaxWR: 3})
	if err != nil {
		t.Fatal(err)
	}
	create := func(pd verbs.PD, cq verbs.CQ, s verbs.SRQ) error {
		_, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, SRQ: s})
		return err
	}
	wantErr(t, "foreign", create(foreign.pd, foreign.cq, s), verbs.ErrInvalid)
	wantErr(t, "nil", create(o.pd, o.cq, (*srq)(nil)), verbs.ErrInvalid)
	wantErr(t, "too deep", func() error { _, err := o.pd.CreateSRQ(verbs.SRQInit{MaxWR: 1 << 20}); return err }(), verbs.ErrLimit)
	if err := create(o.pd, o.cq, s); err != nil {
		t.Fatal(err)
	}
	if err := s.PostRecv(verbs.RecvWR{}, verbs.RecvWR{}); err != nil {
		t.Fatal(err)
	}
	if err := s.SetLimit(2); err != nil {
		t.Fatal(err)
	}
	if a, err := s.Query(); err != nil || a.Queued != 2 || a.MaxWR != 3 || a.Limit != 2 || a.ID == 0 {
		t.Errorf("%+v, %v", a, err)
	}
	wantErr(t, "in use", s.Destroy(), verbs.ErrBusy)
	spare, err := o.pd.CreateSRQ(verbs.SRQInit{})
	if err != nil {
		t.Fatal(err)
	}
	if err := spare.Destroy(); err != nil {
		t.Fatal(err)
	}
	if err := ctx.Close(); err != nil {
		t.Error(err)
	}
	wantErr(t, "after close", s.Destroy(), verbs.ErrClosed)
}
