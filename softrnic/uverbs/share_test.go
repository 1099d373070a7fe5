package uverbs_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const page = 4096

// share does what the library does before it registers memory: it replaces pages by those of the
// daemon. It returns how many files have come.
func (c *client) share(b []byte) (files int) {
	c.t.Helper()
	first := unsafe.Add(unsafe.Pointer(&b[0]), -int(addr(b)%page))
	for {
		before := len(c.fds)
		s := do[uverbs.Share](c, uverbs.ShareMemory, uverbs.ShareArgs{Start: addr(b), End: addr(b) + uint64(len(b))})
		if s.Length == 0 {
			if len(c.fds) != before || s.Number != 0 {
				c.t.Fatalf("no memory, and %+v with %d descriptors", s, len(c.fds)-before)
			}
			return files
		}
		fd := c.fds[len(c.fds)-1]
		off := s.From - addr(b)&^(page-1)
		part := unsafe.Slice((*byte)(unsafe.Add(first, off)), s.Length)
		_, err := unix.Pwrite(fd, part, 0)
		must(c.t, err)
		_, err = unix.MmapPtr(fd, 0, unsafe.Pointer(&part[0]), uintptr(s.Length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
		must(c.t, err)
		files++
	}
}

// unshared returns the numbers of the files that the daemon ends.
func (c *client) unshared(closing uint32) (all []uint32) {
	c.t.Helper()
	for {
		u := do[uverbs.Unshare](c, uverbs.UnshareMemory, uverbs.UnshareArgs{Closing: closing})
		if u.Number == 0 {
			return all
		}
		all = append(all, u.Number)
	}
}

// All operations reach memory that the program shares. The NIC accesses it by the daemon's mapping:
// it does so also when the program has unmapped it, as a NIC of hardware does.
func TestSharedMemory(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, b := h.attach(t, 0), h.attach(t, 1)
	mine, theirs := memory(t, 4*page), memory(t, 4*page)
	copy(theirs[100:], "before")
	if n := a.share(mine) + b.share(theirs[100:3*page]); n != 2 {
		t.Fatalf("%d files", n)
	}
	if string(theirs[100:106]) != "before" {
		t.Fatalf("the pages have lost %q", theirs[100:106])
	}
	x, y := a.queuePairOn(uverbs.TypeRC, addr(mine), len(mine)), b.queuePairOn(uverbs.TypeRC, addr(theirs)+100, 3*page-100)
	x.connect(y, 1)
	y.connect(x, 0)
	copy(mine, "from a program")
	x.post(opWrite, 0, 14, y.at+page-107, y.mr.RKey) // over the border of two pages
	x.succeeds()
	if got := string(theirs[page-7 : page+7]); got != "from a program" {
		t.Errorf("WRITE: %q", got)
	}
	x.post(opRead, 1000, 6, y.at, y.mr.RKey)
	x.succeeds()
	if got := string(mine[1000:1006]); got != "before" {
		t.Errorf("READ: %q", got)
	}
	y.receive(2*page, 14)
	x.post(opSend, 0, 14, 0, 0)
	x.succeeds()
	y.succeeds()
	if got := string(theirs[100+2*page : 100+2*page+14]); got != "from a program" {
		t.Errorf("SEND: %q", got)
	}
	word := (*uint64)(unsafe.Pointer(&theirs[2*page]))
	*word = 40
	x.post(opAdd, 2000, 8, addr(theirs)+2*page, y.mr.RKey, 2, 0)
	x.succeeds()
	if *word != 42 || mine[2000] != 40 {
		t.Errorf("FETCH_ADD: %d, was %d", *word, mine[2000])
	}
	must(t, unix.Munmap(theirs))
	x.post(opWrite, 0, 14, addr(theirs)+page, y.mr.RKey)
	x.succeeds()
	x.post(opRead, 500, 14, addr(theirs)+page, y.mr.RKey)
	x.succeeds()
	if got := string(mine[500:514]); got != "from a program" {
		t.Errorf("after the unmapping: %q", got)
	}
	must(t, unix.Munmap(mine))
	h.ends(t, a, b)
}

// ends closes programs and waits until nothing is left of them.
func (h *house) ends(t *testing.T, all ...*client) {
	t.Helper()
	for _, c := range all {
		c.close()
	}
	for i := range h.servers {
		h.leftOn(t, i, 0)
	}
	if n := mappedByDaemon(t); n != 0 {
		t.Errorf("%d mappings of shared memory are left", n)
	}
}

// mappedByDaemon is how many mappings of shared memory this process has. The test's process is
// program and daemon, so programs unmap theirs before.
func mappedByDaemon(t *testing.T) (n int) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	must(t, err)
	return bytes.Count(b, []byte("/memfd:"+uverbs.ShareName))
}

// What cannot be shared stays what it is, and is registered with the rest.
func TestWhatIsNotShared(t *testing.T) {
	h := newHouse(t, serve.Limits{Bytes: 16 * page})
	c := h.attach(t, 0)
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	must(t, err)
	defer file.Close()
	must(t, file.Truncate(page))
	over := func(b []byte, fd, prot, flags int) []byte { // replaces the second page
		_, err := unix.MmapPtr(fd, 0, unsafe.Pointer(&b[page]), page, prot, flags|unix.MAP_FIXED)
		must(t, err)
		return b
	}
	pd := do[uverbs.Handle](c, uverbs.AllocPD).H
	reg := func(b []byte) uint32 {
		return do[uverbs.MR](c, uverbs.RegMR, uverbs.RegMRArgs{Start: addr(b), Length: uint64(len(b)), VA: addr(b), PD: pd, Access: 0}).H
	}
	const rw = unix.PROT_READ | unix.PROT_WRITE
	registered := memory(t, 4*page)
	reg(registered[page+8 : page+16])
	for what, c2 := range map[string]struct {
		memory []byte
		files  int
	}{
		"a page of a file":               {over(memory(t, 4*page), int(file.Fd()), rw, unix.MAP_SHARED), 2},
		"a private page of a file":       {over(memory(t, 4*page), int(file.Fd()), rw, unix.MAP_PRIVATE), 2},
		"a page that may not be written": {over(memory(t, 4*page), -1, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON), 2},
		"anonymous shared memory":        {over(memory(t, 4*page), -1, rw, unix.MAP_SHARED|unix.MAP_ANON), 2},
		"a page of another region":       {registered, 2},
		"less than a page":               {memory(t, page)[1:], 0},
		"parts of two pages":             {memory(t, 2*page)[1 : 2*page-1], 0},
		"the whole quota":                {memory(t, 16*page), 1},
		"more than the quota":            {memory(t, 17*page), 0},
	} {
		if n := c.share(c2.memory); n != c2.files {
			t.Errorf("%s: %d files, want %d", what, n, c2.files)
		}
		mr := reg(c2.memory)
		if all := c.unshared(0); all != nil {
			t.Errorf("%s: ended below a region: %v", what, all)
		}
		do[none](c, uverbs.DeregMR, uverbs.Handle{H: mr})
		if all := c.unshared(0); len(all) != c2.files {
			t.Errorf("%s: ended %v, want %d", what, all, c2.files)
		}
	}
	for what, a := range map[string]uverbs.ShareArgs{"no bytes": {Start: 8, End: 8}, "no address": {Start: 8, End: 1 << 63}} {
		if _, errno := c.raw(uverbs.ShareMemory, 0, uverbs.Encode(a)); errno != unix.EINVAL {
			t.Errorf("%s: %v", what, errno)
		}
	}
}

// Regions may share pages: each page is shared once, and stays so until no region is over it.
func TestSharesOfSeveralRegions(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	c := h.attach(t, 0)
	pd := do[uverbs.Handle](c, uverbs.AllocPD).H
	b := memory(t, 6*page)
	reg := func(c *client, pd uint32, from, to int) uint32 {
		return do[uverbs.MR](c, uverbs.RegMR, uverbs.RegMRArgs{Start: addr(b[from:]), Length: uint64(to - from), VA: addr(b[from:]), PD: pd, Access: allow}).H
	}
	dereg := func(c *client, h uint32) { do[none](c, uverbs.DeregMR, uverbs.Handle{H: h}) }
	if n := c.share(b[:3*page]); n != 1 {
		t.Fatalf("%d files", n)
	}
	first := reg(c, pd, 0, 3*page) // file 1
	if n := c.share(b[2*page : 5*page]); n != 1 {
		t.Fatalf("%d files", n)
	}
	second := reg(c, pd, 2*page, 5*page) // the last page of file 1, and file 2
	dereg(c, first)
	if all := c.unshared(0); all != nil {
		t.Errorf("ended below a region: %v", all)
	}
	// Another device of the same process uses what is shared.
	other := h.attach(t, 0)
	otherPD := do[uverbs.Handle](other, uverbs.AllocPD).H
	if n := other.share(b[page : 4*page]); n != 0 {
		t.Errorf("shared again: %d", n)
	}
	third := reg(other, otherPD, page, 4*page)
	dereg(c, second)
	if all := c.unshared(0); all != nil {
		t.Errorf("ended below the region of another device: %v", all)
	}
	c.close()
	h.left(t, 1)
	if all := other.unshared(0); all != nil {
		t.Errorf("ended with the device that has made it: %v", all)
	}
	if all := other.unshared(1); !slices.Equal(all, []uint32{1, 2}) {
		t.Errorf("before it closes: %v", all)
	}
	dereg(other, third)
	must(t, unix.Munmap(b))
	h.ends(t, other)
}

// Pages that the NIC accesses by the program's memory file stay shared below it: the library could
// not make them private without refusing writes of the NIC.
func TestSharesBelowOtherMemory(t *testing.T) {
	h := newHouse(t, serve.Limits{Bytes: 4 * page})
	c, other := h.attach(t, 0), h.attach(t, 0)
	b := memory(t, 8*page)
	pds := [2]uint32{do[uverbs.Handle](c, uverbs.AllocPD).H, do[uverbs.Handle](other, uverbs.AllocPD).H}
	if n := c.share(b[:4*page]); n != 1 {
		t.Fatalf("%d files", n)
	}
	if n := other.share(b); n != 1 {
		t.Fatalf("%d files of the second device", n)
	}
	// The second device cannot be charged for the file of the first.
	far := do[uverbs.MR](other, uverbs.RegMR, uverbs.RegMRArgs{Start: addr(b), Length: 8 * page, VA: addr(b), PD: pds[1], Access: allow}).H
	if all := c.unshared(0); all != nil {
		t.Errorf("ended below other memory: %v", all)
	}
	if all := c.unshared(1); all != nil {
		t.Errorf("ended below other memory of a device that stays: %v", all)
	}
	do[none](other, uverbs.DeregMR, uverbs.Handle{H: far})
	if all := c.unshared(0); !slices.Equal(all, []uint32{1, 2}) {
		t.Errorf("ended: %v", all)
	}
	must(t, unix.Munmap(b))
	h.ends(t, c, other)
}

// A client stays charged for shares that it ends below its regions while it closes: the daemon still has
// them mapped.
func TestQuotaOfAClosingClient(t *testing.T) {
	h := newHouse(t, serve.Limits{Bytes: 4 * page})
	c := h.attach(t, 0)
	pd, files := do[uverbs.Handle](c, uverbs.AllocPD).H, 0
	b := memory(t, 8*page)
	for i := range 8 {
		one := b[i*page : (i+1)*page]
		files += c.share(one)
		do[uverbs.MR](c, uverbs.RegMR, uverbs.RegMRArgs{Start: addr(one), Length: page, VA: addr(one), PD: pd, Access: allow})
		c.unshared(1)
	}
	if files != 4 {
		t.Errorf("%d files of a page, with a quota of 4 pages", files)
	}
	must(t, unix.Munmap(b))
	h.ends(t, c)
}

// Shares have a quota of their own: they leave the program all other objects.
func TestQuotaOfShares(t *testing.T) {
	h := newHouse(t, serve.Limits{Memories: 2})
	c := h.attach(t, 0)
	b, files := memory(t, 3*page), 0
	for i := range 3 {
		files += c.share(b[i*page : (i+1)*page])
	}
	if files != 2 {
		t.Errorf("%d files, with a quota of 2", files)
	}
	for range 2 {
		if _, errno := c.raw(uverbs.CreateCompChannel, uverbs.NoChannel, nil); errno != 0 {
			t.Errorf("a channel beside the shares: %v", errno)
		}
	}
}

// A mapping of the daemon's file that the program has made itself is used as far as the file goes.
func TestStrangeMappingsOfShares(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, b := h.attach(t, 0), h.attach(t, 1)
	base := memory(t, 2*page)
	if n := b.share(base); n != 1 {
		t.Fatalf("%d files", n)
	}
	fd := b.fds[len(b.fds)-1]
	for what, c := range map[string]struct {
		off   int64
		n     int
		flags int
		fails bool
	}{
		"moved":          {0, 2 * page, unix.MAP_SHARED, false},
		"with an offset": {page, page, unix.MAP_SHARED, false},
		"a private copy": {0, 2 * page, unix.MAP_PRIVATE, false},
		"behind its end": {page, 2 * page, unix.MAP_SHARED, true},
		"far behind it":  {1 << 40, page, unix.MAP_SHARED, true},
	} {
		at, err := unix.MmapPtr(fd, c.off, nil, uintptr(c.n), unix.PROT_READ|unix.PROT_WRITE, c.flags)
		must(t, err)
		there := unsafe.Slice((*byte)(at), c.n)
		t.Cleanup(func() { must(t, unix.MunmapPtr(at, uintptr(c.n))) })
		if c.flags == unix.MAP_PRIVATE {
			clear(there) // from now on the pages are not those of the file
		}
		x := a.queuePair(uverbs.TypeRC)
		y := b.queuePairOn(uverbs.TypeRC, addr(there), c.n)
		x.connect(y, 1)
		y.connect(x, 0)
		copy(x.buf, what)
		x.post(opWrite, 0, len(what), y.at+uint64(c.n-len(what)), y.mr.RKey)
		got := verbs.Status(x.next().Status)
		switch {
		case c.fails != (got == verbs.RemAccessErr) || !c.fails && got != verbs.Success:
			t.Errorf("%s: %v", what, got)
		case !c.fails && string(there[c.n-len(what):]) != what:
			t.Errorf("%s: %q", what, there[c.n-len(what):])
		}
	}
	if all := b.unshared(0); all != nil {
		t.Errorf("ended below regions: %v", all)
	}
}

// The preloaded library shares what a program registers, and nothing that the program does with its
// memory at the same time is lost.
func TestLibraryShares(t *testing.T) {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		t.Skip("needs the right to use userfaultfd")
	}
	must(t, unix.Close(int(fd)))
	h, lib := newHouse(t, serve.Limits{}), library(t)
	program := filepath.Join(t.TempDir(), "shares")
	compile(t, "gcc", "-O1", "-g", "-Wall", "-Werror", "-pthread", "-o", program, "testdata/shares.c")
	for _, s := range []string{"registered", "several", "written", "touched", "forked", "grown", "stack", "closed", "devices", "refused", "beside", "stackforked", "forkers", "limited", "guarded", "unasked"} {
		memory := "shared"
		if s == "unasked" {
			memory = ""
		}
		story(t, h.sockets[0], program, lib, s, "RDMALAB_VERBS_MEMORY="+memory)
	}
	h.emptied(t)
}
