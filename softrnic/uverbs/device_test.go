package uverbs_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// zeroBased are the access rights of a region of device memory.
const zeroBased = uverbs.ZeroBased | allow

// A program allocates device memory, copies to and from it, and lets its peer write and read it by a
// region. Device memory with regions is not freed.
func TestDeviceMemory(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, b := h.linked(t, uverbs.TypeRC)
	dm := do[uverbs.Handle](b.client, uverbs.AllocDM, uverbs.AllocDMArgs{Length: 4096}).H
	if n := do[uverbs.DM](b.client, uverbs.QueryDM, uverbs.Handle{H: dm}).Length; n != 4096 {
		t.Errorf("device memory has %d bytes", n)
	}
	do[none](b.client, uverbs.CopyToDM, uverbs.DMPlace{H: dm, Length: 8, Offset: 64}, []byte("by hand!"))
	mr := do[uverbs.MR](b.client, uverbs.RegDM, uverbs.RegDMArgs{Offset: 64, Length: 1024, PD: b.pd, DM: dm, Access: zeroBased})

	a.post(opRead, 0, 8, 0, mr.RKey)
	a.succeeds()
	if !bytes.Equal(a.buf[:8], []byte("by hand!")) {
		t.Errorf("the peer has read %q", a.buf[:8])
	}
	fill(a.buf[:500], 9)
	a.post(opWrite, 0, 500, 100, mr.RKey)
	a.succeeds()
	got := do[[500]byte](b.client, uverbs.CopyFromDM, uverbs.DMPlace{H: dm, Length: 500, Offset: 164})
	if !bytes.Equal(got[:], a.buf[:500]) {
		t.Error("device memory has other bytes than the peer wrote")
	}
	b.end(uverbs.FreeDM, dm, unix.EBUSY)
	b.end(uverbs.DeregMR, mr.H, 0)
	b.end(uverbs.FreeDM, dm, 0)
	b.end(uverbs.FreeDM, dm, unix.EINVAL)
}

// What a program may not ask of device memory is refused, and counts nothing.
func TestDeviceMemoryRefused(t *testing.T) {
	h := newHouse(t, serve.Limits{DMs: 2, DeviceBytes: 8192})
	c := h.attach(t, 0)
	e := c.queuePair(uverbs.TypeRC)
	before := h.used()
	dm := do[uverbs.Handle](c, uverbs.AllocDM, uverbs.AllocDMArgs{Length: 100}).H
	place := func(length uint32, offset uint64) uverbs.DMPlace {
		return uverbs.DMPlace{H: dm, Length: length, Offset: offset}
	}
	reg := func(offset, length uint64, access uint32) uverbs.RegDMArgs {
		return uverbs.RegDMArgs{Offset: offset, Length: length, PD: e.pd, DM: dm, Access: access}
	}
	for name, r := range map[string]struct {
		op    uverbs.Op
		args  []any
		errno unix.Errno
	}{
		"nothing":                   {uverbs.AllocDM, []any{uverbs.AllocDMArgs{}}, unix.EINVAL},
		"an alignment of 8 KiB":     {uverbs.AllocDM, []any{uverbs.AllocDMArgs{Length: 8, Align: 13}}, unix.EINVAL},
		"more than the quota":       {uverbs.AllocDM, []any{uverbs.AllocDMArgs{Length: 8192}}, unix.ENOMEM},
		"more than an int":          {uverbs.AllocDM, []any{uverbs.AllocDMArgs{Length: 1 << 63}}, unix.EINVAL},
		"to an odd place":           {uverbs.CopyToDM, []any{place(4, 1), uint32(0)}, unix.EINVAL},
		"to an odd length":          {uverbs.CopyToDM, []any{place(3, 0), uint32(0)}, unix.EINVAL},
		"to behind the end":         {uverbs.CopyToDM, []any{place(4, 100), uint32(0)}, unix.EINVAL},
		"far behind the end":        {uverbs.CopyToDM, []any{place(4, 1<<63), uint32(0)}, unix.EINVAL},
		"more bytes than come":      {uverbs.CopyToDM, []any{place(8, 0), uint32(0)}, unix.EINVAL},
		"from behind the end":       {uverbs.CopyFromDM, []any{place(8, 96)}, unix.EINVAL},
		"too much at once":          {uverbs.CopyFromDM, []any{place(1<<31, 0)}, unix.EINVAL},
		"no device memory":          {uverbs.CopyFromDM, []any{uverbs.DMPlace{H: dm + 1}}, unix.EINVAL},
		"a region behind the end":   {uverbs.RegDM, []any{reg(4, 100, zeroBased)}, unix.EINVAL},
		"a region at an odd place":  {uverbs.RegDM, []any{reg(2, 4, zeroBased)}, unix.EINVAL},
		"a region with addresses":   {uverbs.RegDM, []any{reg(0, 4, allow)}, unix.EINVAL},
		"a region with odd rights":  {uverbs.RegDM, []any{reg(0, 4, zeroBased|1<<15)}, unix.EOPNOTSUPP},
		"a region far behind":       {uverbs.RegDM, []any{reg(1<<62, 1<<62, zeroBased)}, unix.EINVAL},
		"no domain":                 {uverbs.RegDM, []any{uverbs.RegDMArgs{PD: 99, DM: dm, Access: zeroBased}}, unix.EINVAL},
		"no memory for a region":    {uverbs.RegDM, []any{uverbs.RegDMArgs{PD: e.pd, DM: dm + 1, Access: zeroBased}}, unix.EINVAL},
		"half of the arguments":     {uverbs.RegDM, []any{uint64(0)}, unix.EINVAL},
		"half of the place":         {uverbs.CopyToDM, []any{uint32(0)}, unix.EINVAL},
		"the length of nothing":     {uverbs.QueryDM, []any{uverbs.Handle{H: dm + 1}}, unix.EINVAL},
		"the keys of no region":     {uverbs.QueryMR, []any{uverbs.Handle{H: 99}}, unix.EINVAL},
		"a change of no region":     {uverbs.ReregMR, []any{uverbs.ReregMRArgs{H: 99, Flags: 1}}, unix.EINVAL},
		"no change":                 {uverbs.ReregMR, []any{uverbs.ReregMRArgs{H: e.mr.H}}, unix.EINVAL},
		"an unknown change":         {uverbs.ReregMR, []any{uverbs.ReregMRArgs{H: e.mr.H, Flags: 8}}, unix.EINVAL},
		"a change to no domain":     {uverbs.ReregMR, []any{uverbs.ReregMRArgs{H: e.mr.H, Flags: uverbs.ReregPD, PD: 99}}, unix.EINVAL},
		"a change to no memory":     {uverbs.ReregMR, []any{uverbs.ReregMRArgs{H: e.mr.H, Flags: uverbs.ReregTranslation, Start: 1 << 20, Length: 8}}, unix.EFAULT},
		"a change to odd rights":    {uverbs.ReregMR, []any{uverbs.ReregMRArgs{H: e.mr.H, Flags: uverbs.ReregAccess, Access: 1 << 15}}, unix.EOPNOTSUPP},
		"a change to remote writes": {uverbs.ReregMR, []any{uverbs.ReregMRArgs{H: e.mr.H, Flags: uverbs.ReregAccess, Access: 2}}, unix.EINVAL},
	} {
		if _, errno := c.raw(r.op, uverbs.NoChannel, uverbs.Encode(r.args...)); errno != r.errno {
			t.Errorf("%s: %v, want %v", name, errno, r.errno)
		}
	}
	empty := do[uverbs.MR](c, uverbs.RegDM, reg(0, 0, zeroBased)) // allowed: it gives access to nothing
	if _, errno := c.raw(uverbs.ReregMR, uverbs.NoChannel, uverbs.Encode(uverbs.ReregMRArgs{H: empty.H, Flags: uverbs.ReregAccess})); errno != unix.EINVAL {
		t.Errorf("a change of a region of device memory: %v", errno)
	}
	c.end(uverbs.DeregMR, empty.H, 0)
	c.end(uverbs.FreeDM, dm, 0)
	if more := h.more(before); len(more) > 0 {
		t.Errorf("still counted: %v", more)
	}
	h.works(t)
}

// A region whose rights change keeps its keys; with other memory, or in another domain, it gets others,
// and the old ones are void.
func TestReregister(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	before := h.used()
	a, b := h.linked(t, uverbs.TypeRC)
	change := func(x uverbs.ReregMRArgs) uverbs.Rereged {
		t.Helper()
		x.H = b.mr.H
		return do[uverbs.Rereged](b.client, uverbs.ReregMR, x)
	}
	if r := change(uverbs.ReregMRArgs{Flags: uverbs.ReregAccess, Access: allow &^ 4}); r.LKey != b.mr.LKey || r.RKey != b.mr.RKey {
		t.Errorf("other keys by other rights: %+v, before %+v", r, b.mr)
	}
	other := memory(t, 1<<16)
	r := change(uverbs.ReregMRArgs{Flags: uverbs.ReregTranslation | uverbs.ReregAccess, Start: addr(other), Length: 1 << 16, VA: addr(other), Access: allow})
	if r.RKey == b.mr.RKey {
		t.Error("the old key is still valid")
	}
	info := do[uverbs.MRInfo](b.client, uverbs.QueryMR, uverbs.Handle{H: b.mr.H})
	if info != (uverbs.MRInfo{Length: 1 << 16, LKey: r.LKey, RKey: r.RKey}) {
		t.Errorf("the region is %+v, want the keys %+v", info, r)
	}
	fill(a.buf[:100], 5)
	a.post(opWrite, 0, 100, addr(other), r.RKey)
	a.succeeds()
	if !bytes.Equal(other[:100], a.buf[:100]) {
		t.Error("other bytes than the peer wrote")
	}
	// In another domain than the queue pair, the region is not the peer's to write.
	pd := do[uverbs.Handle](b.client, uverbs.AllocPD).H
	r = change(uverbs.ReregMRArgs{Flags: uverbs.ReregPD, PD: pd})
	b.end(uverbs.DeallocPD, pd, unix.EBUSY)
	a.post(opWrite, 0, 100, addr(other), r.RKey)
	if c := a.next(); c.Status == 0 {
		t.Error("the peer has written to a region of another domain")
	}
	b.end(uverbs.DeregMR, b.mr.H, 0)
	b.end(uverbs.DeallocPD, pd, 0)
	a.close()
	b.close()
	h.emptied(t)
	if more := h.more(before); len(more) > 0 {
		t.Errorf("still counted: %v", more)
	}
}

// A completion queue with timestamps has one behind each completion, by the clock of the machine, and
// they rise. Without the flag nothing is there.
func TestTimestamps(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	for _, flags := range []uint32{0, uverbs.CQTimestamps} {
		e := h.attach(t, 0).queuePair(uverbs.TypeRC)
		cq := do[struct {
			CQ uverbs.CQ
			Ex uverbs.Ex
			At uverbs.Area
		}](e.client, uverbs.CreateCQ|uverbs.Extended, uverbs.ExCQArgs{CQE: 15, Channel: -1, Flags: flags})
		qp := do[made](e.client, uverbs.CreateQP, uverbs.QPArgs{
			PD: e.pd, SendCQ: cq.CQ.H, RecvCQ: cq.CQ.H, MaxSend: 4, MaxRecv: 4, MaxSGE: 1, MaxRecvSGE: 1, SignalAll: 1, Type: uverbs.TypeRC,
		})
		e.qp, e.done, e.recv = qp.QP, e.view(cq.At), e.view(qp.Recv)
		m := uverbs.ModifyQPArgs{H: e.qp.H, Mask: needs(e.typ, 0, 1)}
		m.State, m.Access, m.Port = 1, allow&^1, 1
		do[none](e.client, uverbs.ModifyQP, m)
		e.toError()
		last := now(t)
		for i := range uint32(3) {
			e.receive(int(i), 8)
			e.flushed(uint64(i))
			stamp := binary.NativeEndian.Uint64(e.done.Slot(i)[48:])
			if flags == 0 && stamp != 0 {
				t.Errorf("a timestamp %d that was not asked for", stamp)
			}
			if flags != 0 && (stamp < last || stamp > now(t)) {
				t.Errorf("timestamp %d, the clock was %d before and is %d", stamp, last, now(t))
			}
			last = max(last, stamp)
		}
	}
}

// now reads the clock of timestamps.
func now(t *testing.T) uint64 {
	t.Helper()
	var ts unix.Timespec
	must(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts))
	return uint64(ts.Nano())
}
