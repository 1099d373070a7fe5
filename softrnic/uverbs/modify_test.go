package uverbs_test

import (
	"runtime"
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

// asUser calls f in a thread that has another effective user: the daemon sees the user of the thread
// that connects.
func asUser(t *testing.T, uid int, f func()) {
	t.Helper()
	if unix.Geteuid() != 0 {
		t.Skip("only root can take another user")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); e != 0 {
			t.Errorf("setresuid: %v", e)
			return
		}
		if _, _, e := unix.RawSyscall(unix.SYS_SETFSUID, 0, 0, 0); e != 0 && int(e) != uid { // the socket's folder is root's
			t.Logf("setfsuid: %v", e)
		}
		f()
	}()
	<-done
}

// A Q_Key that begins with a 1 bit is refused to a program that is not root's, from each state:
// EPERM, and the queue pair is as before. Root's may set it, and what has it is received.
func TestControlledQKey(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	const controlled, toRTS = 1<<31 | 6, uverbs.MaskState | uverbs.MaskSendPSN | uverbs.MaskQKey
	const otherUser = 65534
	modify, query := modifier(h, t)
	steps := func(e *ends, key uint32) (errnos [4]unix.Errno) {
		errnos[0] = modify(e, uverbs.MaskState|uverbs.MaskQKey|1<<4|1<<5, func(m *uverbs.ModifyQPArgs) { m.State, m.Port, m.QKey = 1, 1, key })
		_ = modify(e, uverbs.MaskState|uverbs.MaskQKey|1<<4|1<<5, func(m *uverbs.ModifyQPArgs) { m.State, m.Port, m.QKey = 1, 1, 5 })
		errnos[1] = modify(e, uverbs.MaskState|uverbs.MaskQKey, func(m *uverbs.ModifyQPArgs) { m.State, m.QKey = 2, key })
		if errnos[1] != 0 {
			_ = modify(e, uverbs.MaskState, func(m *uverbs.ModifyQPArgs) { m.State = 2 })
		}
		errnos[2] = modify(e, toRTS, func(m *uverbs.ModifyQPArgs) { m.State, m.QKey = 3, key })
		if q := query(e); errnos[2] != 0 && (q.State != 2 || q.QKey != 5) {
			t.Errorf("state %d, Q_Key %#x after a refusal, want RTR (2) and 5", q.State, q.QKey)
		}
		if errnos[2] != 0 {
			_ = modify(e, toRTS, func(m *uverbs.ModifyQPArgs) { m.State, m.QKey = 3, 6 })
		}
		errnos[3] = modify(e, uverbs.MaskQKey, func(m *uverbs.ModifyQPArgs) { m.QKey = key })
		return errnos
	}
	root := h.attach(t, 0).queuePair(uverbs.TypeUD)
	if got := steps(root, controlled); got != [4]unix.Errno{} {
		t.Errorf("root: %v", got)
	}
	if q := query(root); q.State != 3 || q.QKey != controlled {
		t.Errorf("state %d, Q_Key %#x", q.State, q.QKey)
	}
	var other *client
	files := selfFiles(t, "/proc/self/mem", "/proc/self/maps")
	asUser(t, otherUser, func() { other = h.attachBy(t, 0, files) })
	if got, want := steps(other.queuePair(uverbs.TypeUD), controlled), [4]unix.Errno{unix.EPERM, unix.EPERM, unix.EPERM, unix.EPERM}; got != want {
		t.Errorf("another user: %v, want %v", got, want)
	}
}
