package uverbs_test

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/ucma"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const groupQKey = 0x01234567

// datagrams is a program with a queue pair for datagrams in RTS.
func (h *house) datagrams(t testing.TB, nic int) *ends {
	t.Helper()
	e := h.attach(t, nic).queuePair(uverbs.TypeUD)
	m := uverbs.ModifyQPArgs{H: e.qp.H}
	m.Port, m.QKey = 1, groupQKey
	for m.State = 1; m.State <= 3; m.State++ {
		m.Mask = needs(e.typ, m.State-1, m.State)
		do[none](e.client, uverbs.ModifyQP, m)
	}
	return e
}

// postTo sends to the group of an address handle.
func (e *ends) postTo(ah uint32, off, n int) {
	e.t.Helper()
	e.post(opSend, off, n, uint64(verbs.MulticastQPN)|groupQKey<<32, 0, uint64(ah)<<32)
}

func (e *ends) multicast(op uverbs.Op, group verbs.GID) unix.Errno {
	e.t.Helper()
	_, errno := e.raw(op, uverbs.NoChannel, uverbs.Encode(uverbs.MulticastArgs{Group: group, H: e.qp.H}))
	return errno
}

// Programs attach queue pairs to a group, also twice, and receive what another sends to it; errors
// have the numbers that a kernel driver returns.
func TestMulticast(t *testing.T) {
	h := newHouse(t, serve.Limits{Attachments: 2})
	a, b := h.datagrams(t, 0), h.datagrams(t, 1)
	group := verbs.GID{10: 0xff, 11: 0xff, 12: 239, 13: 1, 14: 2, 15: 3}
	for range 2 {
		if errno := b.multicast(uverbs.AttachMulticast, group); errno != 0 {
			t.Fatal(errno)
		}
	}
	ah := do[uverbs.AH](a.client, uverbs.CreateAH, uverbs.AHArgs{PD: a.pd, Attr: uverbs.AHAttr{DestGID: group, Global: 1, Port: 1}})
	for range 2 {
		b.receive(0, 1040)
	}
	fill(a.buf[:1000], 5)
	a.postTo(ah.Num, 0, 1000)
	if c := b.succeeds(); c.Len != 1040 || !bytes.Equal(b.buf[40:1040], a.buf[:1000]) || c.SL != 2 || c.From != a.qp.QPN || c.Flags != 1 {
		t.Errorf("received %+v", c)
	}
	a.succeeds()
	refused := map[string]struct {
		e    *ends
		op   uverbs.Op
		gid  verbs.GID
		want unix.Errno
	}{
		"not attached":      {a, uverbs.DetachMulticast, group, unix.EINVAL},
		"no group":          {a, uverbs.AttachMulticast, verbs.GIDOf(ips[1]), unix.EINVAL},
		"a connection":      {h.attach(t, 0).queuePair(uverbs.TypeRC), uverbs.AttachMulticast, group, unix.EINVAL},
		"destroy attached":  {b, uverbs.DestroyQP, verbs.GID{}, unix.EBUSY},
		"no such operation": {a, uverbs.Op(29), group, unix.EOPNOTSUPP},
	}
	for name, c := range refused {
		errno := unix.Errno(0)
		if c.op == uverbs.DestroyQP {
			_, errno = c.e.raw(c.op, uverbs.NoChannel, uverbs.Encode(uverbs.Handle{H: c.e.qp.H}))
		} else {
			errno = c.e.multicast(c.op, c.gid)
		}
		if errno != c.want {
			t.Errorf("%s: %v, want %v", name, errno, c.want)
		}
	}
	other := group
	for i, want := range []unix.Errno{0, unix.ENOMEM} {
		other[15]++
		if errno := b.multicast(uverbs.AttachMulticast, other); errno != want {
			t.Errorf("group %d more: %v, want %v", i, errno, want)
		}
	}
	if errno := b.multicast(uverbs.DetachMulticast, group); errno != 0 {
		t.Error(errno)
	}
	a.postTo(ah.Num, 0, 8)
	a.succeeds()
	other[15]--
	if errno := b.multicast(uverbs.DetachMulticast, other); errno != 0 {
		t.Error(errno)
	}
	do[uverbs.Reported](b.client, uverbs.DestroyQP, uverbs.Handle{H: b.qp.H})
	for _, q := range h.servers[1].Quotas() {
		if q.Name == "attachments" && (q.Used != 0 || q.Quota != 2) {
			t.Errorf("quota %+v", q)
		}
	}
}

// librdmacm joins a group through the socket of the connection manager.
func TestJoinBySocket(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	m := h.manages(t, 0)
	if a, _ := m.raw(ucma.LeaveMulticast, m.channel, uint64(0), uint64(0)); unix.Errno(a.Errno) != unix.ENOENT {
		t.Errorf("a membership that does not exist ends with %v", unix.Errno(a.Errno))
	}
	if a, _ := m.raw(ucma.JoinIPMulticast, m.channel, make([]byte, 48)); unix.Errno(a.Errno) != unix.ENOENT {
		t.Errorf("an identifier that does not exist joins: %v", unix.Errno(a.Errno))
	}
}

// A member of a group cannot be destroyed before it leaves the group. If it has ended with its NIC,
// it can, and its attachments count no more.
func TestDestroyedMembersOfAGroup(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	e := h.datagrams(t, 0)
	for i := range byte(2) {
		if errno := e.multicast(uverbs.AttachMulticast, verbs.GID{10: 0xff, 11: 0xff, 12: 239, 13: 1, 14: 2, 15: i}); errno != 0 {
			t.Fatal(errno)
		}
	}
	e.end(uverbs.DestroyQP, e.qp.H, unix.EBUSY)
	if n := h.used(); n["attachments"] != 2 || n["qps"] != 1 {
		t.Errorf("one that exists uses %v", n)
	}
	h.devices[0].Down()
	e.end(uverbs.DestroyQP, e.qp.H, 0)
	if n := h.used(); n["attachments"] != 0 || n["qps"] != 0 {
		t.Errorf("one that has ended uses %v", n)
	}
	h.devices[0].Up()
}
