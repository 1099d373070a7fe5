package verbsengine

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A queue pair for datagrams, used through the verbs: its address handles belong to their context,
// and Close destroys them.
func TestAddressHandles(t *testing.T) {
	b := newFake(t)
	ctx, other := New(b), New(b)
	o, foreign := newObjects(t, ctx), newObjects(t, other)
	self := verbs.AHAttr{DestGID: ctx.Device().GIDs[0]}
	ah, err := o.pd.CreateAH(self)
	if err != nil {
		t.Fatal(err)
	}
	strange, err := foreign.pd.CreateAH(self)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := o.pd.CreateQP(verbs.QPInit{Type: verbs.UD, SendCQ: o.cq, RecvCQ: o.cq})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		qp.ToInit(verbs.ToInit{QKey: 7}), qp.ToRTR(verbs.ToRTR{}), qp.ToRTS(verbs.ToRTS{}),
		qp.PostRecv(verbs.RecvWR{ID: 1, SGL: []verbs.SGE{o.mr.SGE(0, 64)}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	good := verbs.SendWR{ID: 2, Flags: verbs.Inline, Data: []byte("hi"), AH: ah, RemoteQPN: qp.QPN(), RemoteQKey: 7}
	bad := good
	bad.AH = strange
	wantErr(t, "foreign handle", qp.PostSend(good, bad), verbs.ErrInvalid)
	bad.AH = nil
	wantErr(t, "no handle", qp.PostSend(bad), verbs.ErrInvalid)
	if err := o.cq.Wait(clock.Time(1e9)); err != nil {
		t.Fatal(err)
	}
	var wc [2]verbs.WC
	if n, err := o.cq.Poll(wc[:]); n != 1 || err != nil || wc[0].ID != 1 || wc[0].ByteLen != 42 || wc[0].Flags != verbs.WithGRH|verbs.OverIPv4 {
		t.Errorf("%d completions %+v, %v", n, wc, err)
	}
	wantErr(t, "domain in use", o.pd.Dealloc(), verbs.ErrBusy)
	if err := ctx.Close(); err != nil {
		t.Error(err)
	}
	wantErr(t, "after close", ah.Destroy(), verbs.ErrClosed)
	if err := strange.Destroy(); err != nil {
		t.Error(err)
	}
}
