package uverbs_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// modifier returns functions that change and query the queue pair of an end by commands.
func modifier(h *house, t *testing.T) (func(e *ends, mask uint32, set func(*uverbs.ModifyQPArgs)) unix.Errno, func(e *ends) uverbs.QPAttr) {
	modify := func(e *ends, mask uint32, set func(*uverbs.ModifyQPArgs)) unix.Errno {
		m := uverbs.ModifyQPArgs{H: e.qp.H, Mask: mask}
		set(&m)
		_, errno := e.raw(uverbs.ModifyQP, uverbs.NoChannel, uverbs.Encode(m))
		return errno
	}
	query := func(e *ends) uverbs.QPAttr {
		return do[uverbs.QPAttr](e.client, uverbs.QueryQP, uverbs.QueryQPArgs{H: e.qp.H})
	}
	return modify, query
}

// A command must not succeed without an effect: if the transition to SQD accepts rights, they count.
func TestAccessOnTheWayToSQD(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, b := h.linked(t, uverbs.TypeRC)
	modify, query := modifier(h, t)
	errno := modify(b, uverbs.MaskState|uverbs.MaskAccess, func(m *uverbs.ModifyQPArgs) { m.State, m.Access = 4, 4 })
	if errno == unix.EINVAL {
		return
	}
	t.Logf("errno %v, query says access %#x", errno, query(b).Access)
	a.post(opWrite, 0, 100, addr(b.buf), b.mr.RKey)
	if c := a.next(); verbs.Status(c.Status) != verbs.RemInvReqErr {
		t.Errorf("WRITE without the right: %v", verbs.Status(c.Status))
	}
}

// A program sees how many P_Keys the port has, and a queue pair takes only an index below that.
func TestPKeyIndex(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	e := h.attach(t, 0).queuePair(uverbs.TypeRC)
	modify, query := modifier(h, t)
	if d := do[uverbs.Device](e.client, uverbs.QueryDevice, none{}); d.MaxPKeys != 2 {
		t.Errorf("the device has %d P_Keys, want 2", d.MaxPKeys)
	}
	if p := do[uverbs.Port](e.client, uverbs.QueryPort, uverbs.PortArgs{Port: 1}); p.PKeys != 2 {
		t.Errorf("the port has %d P_Keys, want 2", p.PKeys)
	}
	const toInit = uverbs.MaskState | uverbs.MaskAccess | 1<<4 | 1<<5
	for index, want := range []unix.Errno{0, 0, unix.EINVAL} {
		errno := modify(e, toInit, func(m *uverbs.ModifyQPArgs) { m.State, m.Port, m.PKeyIndex = 1, 1, uint16(index) })
		if errno != want {
			t.Errorf("index %d: errno %v, want %v", index, errno, want)
		}
	}
	if got := query(e); got.PKeyIndex != 1 {
		t.Errorf("the queue pair has P_Key index %d, want 1", got.PKeyIndex)
	}
}

// The transition from SQD to RTS takes no retry count, as ib_modify_qp.
func TestRetryOnTheWayFromSQD(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, _ := h.linked(t, uverbs.TypeRC)
	modify, query := modifier(h, t)
	if errno := modify(a, uverbs.MaskState, func(m *uverbs.ModifyQPArgs) { m.State = 4 }); errno != 0 {
		t.Fatal(errno)
	}
	errno := modify(a, uverbs.MaskState|uverbs.MaskRetry, func(m *uverbs.ModifyQPArgs) { m.State, m.RetryCount = 3, 1 })
	if q := query(a); errno != unix.EINVAL {
		t.Errorf("errno %v, state %d, query says retry count %d; the QP's own count is unchanged", errno, q.State, q.RetryCount)
	}
}

// INIT to RTR and RTR to RTS with values that are refused: EINVAL, and nothing may have changed.
func TestRefusedTransitionChangesNothing(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	e := h.attach(t, 0).queuePair(uverbs.TypeRC)
	p := h.attach(t, 1).queuePair(uverbs.TypeRC)
	modify, query := modifier(h, t)
	m := uverbs.ModifyQPArgs{H: e.qp.H, Mask: needs(e.typ, 0, 1)}
	m.State, m.Access, m.Port = 1, allow&^1, 1
	do[none](e.client, uverbs.ModifyQP, m)
	m.Mask, m.State, m.PathMTU, m.DestQPN, m.MaxDestRdAtomic, m.MinRNRTimer = needs(e.typ, 1, 2), 2, 3, p.qp.QPN, 4, 12
	m.Dest.DestGID, m.Dest.Global, m.Dest.Port = verbs.GIDOf(ips[1]), 1, 1
	do[none](e.client, uverbs.ModifyQP, m)
	errno := modify(e, uverbs.MaskState|uverbs.MaskSendPSN|uverbs.MaskTimeout|uverbs.MaskRetry|uverbs.MaskRNRRetry|uverbs.MaskRdAtomic|uverbs.MaskRNRTimer,
		func(m *uverbs.ModifyQPArgs) {
			m.State, m.Timeout, m.RetryCount, m.RNRRetry, m.MaxRdAtomic, m.MinRNRTimer = 3, 14, 7, 7, 1, 32
		})
	if q := query(e); errno != unix.EINVAL || q.State != 2 {
		t.Errorf("errno %v, state %d, want EINVAL and RTR (2)", errno, q.State)
	}
	errno = modify(e, uverbs.MaskState|uverbs.MaskPKeyIndex|uverbs.MaskSendPSN|uverbs.MaskTimeout|uverbs.MaskRetry|uverbs.MaskRNRRetry|uverbs.MaskRdAtomic,
		func(m *uverbs.ModifyQPArgs) {
			m.State, m.PKeyIndex, m.Timeout, m.RetryCount, m.RNRRetry, m.MaxRdAtomic = 3, 7, 14, 7, 7, 1
		})
	if q := query(e); errno != unix.EINVAL || q.State != 2 || q.PKeyIndex != 0 {
		t.Errorf("errno %v, state %d, P_Key index %d, want EINVAL, RTR (2) and 0", errno, q.State, q.PKeyIndex)
	}
	for _, to := range []uint8{0, 6} { // RESET, ERR
		errno = modify(e, uverbs.MaskState|uverbs.MaskPKeyIndex, func(m *uverbs.ModifyQPArgs) { m.State, m.PKeyIndex = to, 7 })
		if q := query(e); errno != unix.EINVAL || q.State != 2 || q.PKeyIndex != 0 {
			t.Errorf("to state %d: errno %v, state %d, P_Key index %d, want EINVAL, RTR (2) and 0", to, errno, q.State, q.PKeyIndex)
		}
	}
}

// A Q_Key that only the system may set is refused on the way from RTR to RTS, too: EACCES, and the
// queue pair is still in RTR, from which it goes to RTS with another Q_Key.
func TestRefusedQKeyChangesNothing(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	e := h.attach(t, 0).queuePair(uverbs.TypeUD)
	modify, query := modifier(h, t)
	if errno := modify(e, uverbs.MaskState|uverbs.MaskQKey|1<<4|1<<5, func(m *uverbs.ModifyQPArgs) { m.State, m.Port, m.QKey = 1, 1, 5 }); errno != 0 {
		t.Fatal(errno)
	}
	if errno := modify(e, uverbs.MaskState, func(m *uverbs.ModifyQPArgs) { m.State = 2 }); errno != 0 {
		t.Fatal(errno)
	}
	const toRTS = uverbs.MaskState | uverbs.MaskSendPSN | uverbs.MaskQKey
	errno := modify(e, toRTS, func(m *uverbs.ModifyQPArgs) { m.State, m.QKey = 3, 1<<31|6 })
	if q := query(e); errno != unix.EACCES || q.State != 2 || q.QKey != 5 {
		t.Errorf("errno %v, state %d, Q_Key %#x, want EACCES, RTR (2) and 5", errno, q.State, q.QKey)
	}
	errno = modify(e, toRTS, func(m *uverbs.ModifyQPArgs) { m.State, m.QKey = 3, 6 })
	if q := query(e); errno != 0 || q.State != 3 || q.QKey != 6 {
		t.Errorf("errno %v, state %d, Q_Key %#x, want none, RTS (3) and 6", errno, q.State, q.QKey)
	}
}
