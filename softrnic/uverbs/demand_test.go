package uverbs_test

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A region on demand needs no memory when it is made. Each access of the NIC finds what the program has
// mapped at that time: nothing, pages that can only be read, or pages; the region may also be all of the
// program's memory, by its addresses.
func TestMemoryOnDemand(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	before := h.used()
	page := memory(t, 4096) // the test knows an address at which nothing else will be
	at := addr(page)
	for _, whole := range []bool{false, true} {
		reg := uverbs.RegMRArgs{Start: at, Length: 4096, VA: at, Access: allow | uverbs.OnDemand | uverbs.HugePages | uverbs.OwnProvider}
		if whole {
			reg = uverbs.RegMRArgs{Length: ^uint64(0), Access: allow | uverbs.OnDemand | uverbs.OwnProvider}
		}
		for name, c := range map[string]struct {
			prot int
			op   uint32
			want verbs.Status
		}{
			"a WRITE of pages":           {unix.PROT_READ | unix.PROT_WRITE, opWrite, verbs.Success},
			"a READ of pages":            {unix.PROT_READ | unix.PROT_WRITE, opRead, verbs.Success},
			"a READ of read-only pages":  {unix.PROT_READ, opRead, verbs.Success},
			"a WRITE of read-only pages": {unix.PROT_READ, opWrite, verbs.RemAccessErr},
			"a READ of no page":          {unix.PROT_NONE, opRead, verbs.RemAccessErr},
			"a WRITE of no page":         {unix.PROT_NONE, opWrite, verbs.RemAccessErr},
		} {
			a, b := h.linked(t, uverbs.TypeRC)
			reg.PD = b.pd
			must(t, unix.Mprotect(page, unix.PROT_NONE))
			mr := do[uverbs.MR](b.client, uverbs.RegMR, reg)
			must(t, unix.Mprotect(page, unix.PROT_READ|unix.PROT_WRITE))
			fill(page, 3)
			must(t, unix.Mprotect(page, c.prot))
			fill(a.buf[:100], 8)
			a.post(c.op, 0, 100, at+50, mr.RKey)
			got := verbs.Status(a.next().Status)
			must(t, unix.Mprotect(page, unix.PROT_READ|unix.PROT_WRITE))
			if c.want != got && (c.want == verbs.Success || got == verbs.Success) {
				t.Errorf("%s, whole %v: %v, want %v", name, whole, got, c.want)
			}
			written := bytes.Equal(page[50:150], a.buf[:100])
			if written != (c.want == verbs.Success) {
				t.Errorf("%s, whole %v: the bytes are the same: %v", name, whole, written)
			}
			b.end(uverbs.DeregMR, mr.H, 0)
			a.close()
			b.close()
		}
	}
	h.emptied(t)
	if more := h.more(before); len(more) > 0 {
		t.Errorf("still counted: %v", more)
	}
	h.works(t)
}

// Without the flag the memory must be there, as before.
func TestMemoryNotOnDemand(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	c := h.attach(t, 0)
	pd := do[uverbs.Handle](c, uverbs.AllocPD).H
	for _, a := range []uverbs.RegMRArgs{{PD: pd, Start: 1 << 20, Length: 8, Access: allow}, {PD: pd, Length: ^uint64(0), Access: allow}, {PD: pd, Start: 8, Length: ^uint64(0), Access: allow | uverbs.OnDemand | uverbs.OwnProvider}} {
		if _, errno := c.raw(uverbs.RegMR, uverbs.NoChannel, uverbs.Encode(a)); errno != unix.EFAULT && errno != unix.EINVAL {
			t.Errorf("%+v: %v", a, errno)
		}
	}
}
