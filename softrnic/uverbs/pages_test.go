package uverbs_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// pagesLen is the length of the pages that testdata/pages.c maps, and of the ordinary ones behind
// them.
const pagesLen = 1 << 20

// provided is a process of testdata/pages.c.
type provided struct {
	files [2]string // its memory and maps
	at    uint64    // of its pages
	later func()    // makes it map the file now
	end   func()    // ends it and its file system
}

// provide starts testdata/pages.c.
func provide(t testing.TB, program, by string) provided {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pages")
	must(t, os.WriteFile(file, nil, 0o600))
	cmd := exec.Command(program, by, file)
	out, err := cmd.StdoutPipe()
	must(t, err)
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	var p provided
	var pid int
	if _, err := fmt.Fscanf(out, "%d %x\n", &pid, &p.at); err != nil {
		var exit *exec.ExitError
		if errors.As(cmd.Wait(), &exit) && exit.ExitCode() == 77 {
			t.Skip("needs the right to mount FUSE, and userfaultfd")
		}
		t.Fatal(err)
	}
	p.files = [2]string{fmt.Sprintf("/proc/%d/mem", pid), fmt.Sprintf("/proc/%d/maps", pid)}
	p.later = func() {
		t.Helper()
		must(t, unix.Kill(pid, unix.SIGUSR1))
		_, err := fmt.Fscanf(out, "%d %x\n", &pid, &p.at)
		must(t, err)
	}
	ended := false
	p.end = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()         // it was killed
		}
	}
	t.Cleanup(p.end)
	return p
}

// pagesProgram builds testdata/pages.c.
func pagesProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "pages")
	compile(t, "gcc", "-O1", "-g", "-Wall", "-Werror", "-o", program, "testdata/pages.c")
	return program
}

// What a peer of a program does to its memory, or the program itself, and the statuses of both.
var onStrangePages = []struct {
	name       string
	op         uint32
	own        bool // the program posts
	peer, mine verbs.Status
}{
	{"SEND from it", opSend, true, verbs.Success, verbs.LocProtErr},
	{"WRITE from it", opWrite, true, verbs.Success, verbs.LocProtErr},
	{"READ into it", opRead, true, verbs.Success, verbs.LocProtErr},
	{"SEND into it", opSend, false, verbs.RemOpErr, verbs.LocProtErr},
	{"WRITE into it", opWrite, false, verbs.RemAccessErr, verbs.Success},
	{"READ from it", opRead, false, verbs.RemAccessErr, verbs.Success},
	{"FETCH_ADD in it", opAdd, false, verbs.RemAccessErr, verbs.Success},
}

// Pages that do not come, of a file system that hangs or of userfaultfd, stop no other program: the
// memory of their program counts as unmapped. The end of the program and of the daemon do not wait
// for the pages either, and nothing is left when the file system has ended.
func TestPagesThatDoNotCome(t *testing.T) {
	program := pagesProgram(t)
	for _, by := range []string{"hung", "faults"} {
		t.Run(by, func(t *testing.T) {
			h := newHouse(t, serve.Limits{})
			h.timeout = 16 // eight times 0.27 s: a NIC may stand still for a page, on a machine with other work
			good, peer := h.linked(t, uverbs.TypeRC)
			before := openFiles(t)
			for _, c := range onStrangePages {
				p := provide(t, program, by)
				a, b := h.attachWith(t, p.files[:]...), h.attach(t, 1).queuePair(uverbs.TypeRC)
				e := a.queuePairOn(uverbs.TypeRC, p.at, 2*pagesLen)
				e.connect(b, 1)
				b.connect(e, 0)
				poster, target := b, e
				if c.own {
					poster, target = e, b
				}
				target.receive(0, 64)
				poster.post(c.op, 0, 8, target.at, target.mr.RKey)
				for range 10 {
					peer.receive(0, 100)
					good.post(opSend, 0, 100, 0, 0)
					good.succeeds()
					peer.succeeds()
				}
				want := c.peer
				if c.own {
					want = c.mine
				}
				if got := verbs.Status(poster.next().Status); got != want {
					t.Errorf("%s: %v", c.name, got)
				}
				if !c.own && c.mine != verbs.Success {
					if got := verbs.Status(target.next().Status); got != c.mine {
						t.Errorf("%s, at the program: %v", c.name, got)
					}
				}
				a.close()
				b.close()
				h.left(t, 1)
				p.end()
				filesEnd(t, before)
			}
			h.works(t)
		})
	}
}

// The NIC judges a page by the state of a thread. Without a free descriptor it cannot see that, and
// must not wait without end for the page: other programs go on.
func TestPagesThatDoNotComeWithoutDescriptors(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	h.timeout = 18 // eight times a second
	good, peer := h.linked(t, uverbs.TypeRC)
	p := provide(t, pagesProgram(t), "hung")
	a, b := h.attachWith(t, p.files[:]...), h.attach(t, 1).queuePair(uverbs.TypeRC)
	e := a.queuePairOn(uverbs.TypeRC, p.at, 4096)
	e.connect(b, 1)
	b.connect(e, 0)
	b.receive(0, 64)
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: old.Max}))
	defer func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }()
	e.post(opSend, 0, 64, 0, 0)
	peer.receive(0, 100)
	good.post(opSend, 0, 100, 0, 0)
	good.succeeds()
	peer.succeeds()
	if got := verbs.Status(e.next().Status); got != verbs.LocProtErr {
		t.Errorf("SEND: %v", got)
	}
}

// Each guard that waits for a page of a program that has detached keeps a thread and a descriptor
// of the daemon. A user's programs cannot collect them: memory that needs another one is refused
// until the pages have come.
func TestGuardsThatWaitAreBounded(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	h.timeout = 16
	p := provide(t, pagesProgram(t), "hung")
	other := h.attach(t, 1)
	for range 4 {
		a, b := h.attachWith(t, p.files[:]...), other.queuePair(uverbs.TypeRC)
		e := a.queuePairOn(uverbs.TypeRC, p.at, 4096)
		e.connect(b, 1)
		b.connect(e, 0)
		b.receive(0, 64)
		e.post(opSend, 0, 64, 0, 0)
		if got := verbs.Status(e.next().Status); got != verbs.LocProtErr {
			t.Errorf("SEND: %v", got)
		}
		a.close()
		h.left(t, 0)
	}
	register := func(c *client, pd uint32) unix.Errno {
		_, errno := c.raw(uverbs.RegMR, uverbs.NoChannel, uverbs.Encode(uverbs.RegMRArgs{
			Start: p.at, Length: 8, VA: p.at, PD: pd, Access: 1,
		}))
		return errno
	}
	a := h.attachWith(t, p.files[:]...)
	pd := do[uverbs.Handle](a, uverbs.AllocPD, struct{}{}).H
	if errno := register(a, pd); errno != unix.ENOMEM {
		t.Errorf("a fifth guard: %v", errno)
	}
	h.works(t)
	a.close()
	p.end()
	p = provide(t, pagesProgram(t), "served")
	a = h.attachWith(t, p.files[:]...)
	pd = do[uverbs.Handle](a, uverbs.AllocPD, struct{}{}).H
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if errno := register(a, pd); errno == 0 {
			break
		} else if errno != unix.ENOMEM || time.Now().After(deadline) {
			t.Fatalf("after the end of the file system: %v", errno)
		}
	}
}

// When one page does not come, the program has lost its ordinary ones, too, because the kernel may
// let their readers wait behind that of the page. No daemon waits for the page in order to end.
func TestMemoryIsLostAsAWhole(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	h.timeout = 16
	p := provide(t, pagesProgram(t), "hung")
	a, b := h.attachWith(t, p.files[:]...), h.attach(t, 1)
	pair := func(at uint64) *ends {
		e, f := a.queuePairOn(uverbs.TypeRC, at, 4096), b.queuePair(uverbs.TypeRC)
		e.connect(f, 1)
		f.connect(e, 0)
		f.receive(0, 64)
		f.receive(64, 64)
		return e
	}
	ordinary, strange := pair(p.at+pagesLen), pair(p.at)
	for i, c := range []struct {
		from *ends
		want verbs.Status
	}{{ordinary, verbs.Success}, {strange, verbs.LocProtErr}, {ordinary, verbs.LocProtErr}} {
		c.from.post(opSend, 0, 64, 0, 0)
		if got := verbs.Status(c.from.next().Status); got != c.want {
			t.Errorf("SEND %d: %v", i, got)
		}
	}
	again := uverbs.RegMRArgs{
		Start: ordinary.at, Length: 8, VA: ordinary.at, PD: ordinary.pd, Access: 1,
	}
	if _, errno := a.raw(uverbs.RegMR, uverbs.NoChannel, uverbs.Encode(again)); errno != unix.EFAULT {
		t.Errorf("registration of lost memory: %v", errno)
	}
	h.works(t)
	must(t, h.servers[0].Close())
}

// attachAsOther is attachWith by another user. The rights are those of this thread alone.
func (h *house) attachAsOther(t testing.TB, files ...string) *client {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	become := func(user uintptr) {
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), user, ^uintptr(0)); e != 0 {
			t.Skip("needs the right to become another user")
		}
	}
	fds := openAll(t, files...)
	become(65534)
	defer become(0)
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, 0, 0, 0) // reaches the socket; tells no error
	return h.attachBy(t, 0, fds)
}

// A program of another user may map the file over memory that it has registered: it loses its
// memory as well, and other programs go on.
func TestPagesThatComeLaterOfAnotherUser(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	h.timeout = 16
	good, peer := h.linked(t, uverbs.TypeRC)
	before := openFiles(t)
	p := provide(t, pagesProgram(t), "later")
	a, b := h.attachAsOther(t, p.files[:]...), h.attach(t, 1).queuePair(uverbs.TypeRC)
	e := a.queuePairOn(uverbs.TypeRC, p.at, 4096)
	e.connect(b, 1)
	b.connect(e, 0)
	for _, want := range []verbs.Status{verbs.Success, verbs.LocProtErr} {
		b.receive(0, 64)
		e.post(opSend, 0, 64, 0, 0)
		if got := verbs.Status(e.next().Status); got != want {
			t.Errorf("SEND: %v, not %v", got, want)
		}
		peer.receive(0, 100)
		good.post(opSend, 0, 100, 0, 0)
		good.succeeds()
		peer.succeeds()
		if want == verbs.Success {
			p.later()
		}
	}
	a.close()
	b.close()
	p.end()
	filesEnd(t, before)
}

// Pages of a file system that answers are memory as any other.
func TestPagesOfAFileSystem(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	before := openFiles(t)
	p := provide(t, pagesProgram(t), "served")
	a, b := h.attachWith(t, p.files[:]...), h.attach(t, 1).queuePair(uverbs.TypeRC)
	e := a.queuePairOn(uverbs.TypeRC, p.at, 2*pagesLen)
	e.connect(b, 1)
	b.connect(e, 0)
	const n = 300_000
	b.receive(0, n)
	e.post(opSend, 0, n, 0, 0)
	e.succeeds()
	b.succeeds()
	if !bytes.Equal(b.buf[:n], bytes.Repeat([]byte{'s'}, n)) {
		t.Error("other bytes arrived than the file has")
	}
	fill(b.buf[:n], 5)
	b.post(opWrite, 0, n, p.at+pagesLen-n/2, e.mr.RKey) // also into the pages behind
	b.succeeds()
	b.post(opRead, 500_000, n, p.at+pagesLen-n/2, e.mr.RKey)
	b.succeeds()
	if !bytes.Equal(b.buf[:n], b.buf[500_000:500_000+n]) {
		t.Error("what was read is not what was written")
	}
	for _, op := range []uint32{opAdd, opCAS} {
		b.post(op, 0, 8, p.at+64, e.mr.RKey, 1, 2)
		b.succeeds()
	}
	a.close()
	b.close()
	p.end()
	filesEnd(t, before)
}
