package uverbs_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/ucma"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// neighbours are programs with objects of many kinds, which no other program may move: a connection between two
// NICs, an XRC domain with what is in it, device memory, an identifier of librdmacm.
type neighbours struct {
	t    testing.TB
	a, b *ends
	x    *xrcEnds
	xrc  *ends
	m    *manager
	id   uint32
	fd   int // of asynchronous events of a
	dm   uint32
	then state
}

// state is what the neighbours see of their objects.
type state struct {
	qps     [2]uverbs.QPAttr
	target  uverbs.QPAttr
	srq     uverbs.SRQAttr
	mr      uverbs.MRInfo
	word    uint64 // in the device memory
	address string // of the identifier
}

const (
	quiet     = 0x5a    // the byte that the neighbours' memory has everywhere behind the first page
	quietUpTo = 1 << 17 // so much of it is looked at
)

func (h *house) neighbours(t testing.TB, file string) *neighbours {
	t.Helper()
	n := &neighbours{t: t, m: h.manages(t, 0)}
	n.a, n.b = h.linked(t, uverbs.TypeRC)
	n.xrc = h.attach(t, 0).queuePair(uverbs.TypeRC)
	n.x = n.xrc.xrc(t, file)
	n.fd = n.a.asyncEvents()
	n.dm = do[uverbs.Handle](n.a.client, uverbs.AllocDM, uverbs.AllocDMArgs{Length: 64}).H
	do[none](n.a.client, uverbs.CopyToDM, uverbs.DMPlace{H: n.dm, Length: 8}, uint64(quiet))
	n.id = n.m.create(1, spaceTCP)
	n.m.do(ucma.BindIP, uint64(0), sockaddr(netip.AddrPortFrom(ips[0], 7999)), n.id)
	for _, b := range [][]byte{n.a.buf, n.b.buf} {
		for i := range b {
			b[i] = quiet
		}
	}
	n.then = n.look()
	return n
}

func (n *neighbours) look() (s state) {
	for i, e := range []*ends{n.a, n.b} {
		s.qps[i] = do[uverbs.QPAttr](e.client, uverbs.QueryQP, uverbs.QueryQPArgs{H: e.qp.H})
	}
	s.target = do[uverbs.QPAttr](n.xrc.client, uverbs.QueryQP, uverbs.QueryQPArgs{H: n.x.target.H})
	s.srq = do[uverbs.SRQAttr](n.xrc.client, uverbs.QuerySRQ, uverbs.Handle{H: n.x.srq.SRQ.H})
	s.mr = do[uverbs.MRInfo](n.a.client, uverbs.QueryMR, uverbs.Handle{H: n.a.mr.H})
	s.word = do[uint64](n.a.client, uverbs.CopyFromDM, uverbs.DMPlace{H: n.dm, Length: 8})
	s.address = fmt.Sprintf("% x", n.m.do(ucma.QueryRoute, uint64(0), n.id, uint32(0)))
	return s
}

// moved says what of the neighbours has changed; "" if nothing has.
func (n *neighbours) moved() string {
	n.t.Helper()
	if now := n.look(); now != n.then {
		return fmt.Sprintf("the neighbours have\n%+v, before\n%+v", now, n.then)
	}
	for _, e := range []*ends{n.a, n.b} {
		if i := bytes.IndexFunc(e.buf[4096:quietUpTo], func(r rune) bool { return r != quiet }); i >= 0 {
			return fmt.Sprintf("byte %d of the neighbours' memory has changed", 4096+i)
		}
		if e.done.Consumer() != e.done.Producer() {
			return "the neighbours have a completion of something that they have not posted"
		}
	}
	var b [64]byte
	if k, _, err := unix.Recvfrom(n.fd, b[:], unix.MSG_DONTWAIT); err == nil {
		return fmt.Sprintf("the neighbours are told of an event: % x", b[:k])
	}
	if k, err := n.m.poll(0); err != nil || k != 0 {
		return fmt.Sprintf("the neighbours are told of an event of librdmacm: %v", err)
	}
	return ""
}

// unmoved checks that nothing of the neighbours has changed, and that they work.
func (n *neighbours) unmoved() {
	n.t.Helper()
	if s := n.moved(); s != "" {
		n.t.Fatal(s)
	}
	n.b.receive(0, 64)
	n.a.post(opSend, 0, 64, 0, 0)
	n.a.succeeds()
	n.b.succeeds()
}

// What the fuzzer asks of neighbours and of the daemon fails when something moves, or is left.
func TestNeighboursNotice(t *testing.T) {
	for name, move := range map[string]func(h *house, n *neighbours){
		"an attribute": func(_ *house, n *neighbours) {
			m := uverbs.ModifyQPArgs{H: n.a.qp.H, Mask: uverbs.MaskRNRTimer}
			m.MinRNRTimer = 3
			do[none](n.a.client, uverbs.ModifyQP, m)
		},
		"a limit": func(_ *house, n *neighbours) {
			do[none](n.xrc.client, uverbs.ModifySRQ, uverbs.ModifySRQArgs{H: n.x.srq.SRQ.H, Mask: uverbs.MaskSRQLimit, Limit: 3})
		},
		"a state": func(_ *house, n *neighbours) {
			m := uverbs.ModifyQPArgs{H: n.x.target.H, Mask: needs(uverbs.TypeXRCTarget, 0, 1)}
			m.State, m.Port = 1, 1
			do[none](n.xrc.client, uverbs.ModifyQP, m)
		},
		"device memory": func(_ *house, n *neighbours) {
			do[none](n.a.client, uverbs.CopyToDM, uverbs.DMPlace{H: n.dm, Length: 8}, uint64(1))
		},
		"memory":       func(_ *house, n *neighbours) { n.b.buf[quietUpTo-1]++ },
		"a completion": func(_ *house, n *neighbours) { n.a.done.SetProducer(n.a.done.Producer() + 1) },
		"an event": func(h *house, n *neighbours) {
			h.devices[0].SetLink(false)
		},
		"an identifier": func(_ *house, n *neighbours) {
			n.m.do(ucma.SetOption, uint64(0), n.id, uint32(0), uint32(0), uint32(1), uint8(9))
			n.m.do(ucma.ResolveIP, [28]byte{}, sockaddr(netip.AddrPortFrom(ips[1], 1)), n.id, uint32(1))
		},
	} {
		h := newHouse(t, serve.Limits{})
		n := h.neighbours(t, xrcFile(t))
		n.unmoved()
		move(h, n)
		if n.moved() == "" {
			t.Errorf("%s: nothing has moved", name)
		}
	}
	h := newHouse(t, serve.Limits{})
	before := h.holds(t)
	h.attach(t, 0)
	if h.grown(t, before, 10*time.Millisecond) == "" {
		t.Error("a program that is left is not seen")
	}
}

// guarded are the numbers of the neighbours' queue pairs.
func (n *neighbours) guarded() map[uint32]bool {
	return map[uint32]bool{n.a.qp.QPN: true, n.b.qp.QPN: true, n.xrc.qp.QPN: true, n.x.target.QPN: true}
}

// holds is what a process with NICs has.
type holds struct {
	objects  [2]engine.Objects
	used     map[string]int64
	clients  int
	files    map[string]string // by descriptor, what it is
	routines int
}

// String says what is held, and how many files.
func (h holds) String() string {
	return fmt.Sprintf("%+v, used %v, %d clients, %d files, %d goroutines", h.objects, h.used, h.clients, len(h.files), h.routines)
}

// filesOf returns what each open descriptor of this process is.
func filesOf(t testing.TB) map[string]string {
	t.Helper()
	const dir = "/proc/self/fd"
	list, err := os.ReadDir(dir)
	must(t, err)
	files := make(map[string]string, len(list))
	for _, e := range list {
		if is, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil { // that of the listing is closed by now
			files[e.Name()] = is
		}
	}
	return files
}

func (h *house) holds(t testing.TB) holds {
	t.Helper()
	return holds{[2]engine.Objects{h.objects(0), h.objects(1)}, h.used(), len(h.servers[0].Clients()), filesOf(t), runtime.NumGoroutine()}
}

// leftFor is how long programs may take to leave; a fuzzer's input may take 10 s.
const leftFor = 8 * time.Second

// grown waits until the process holds what it held before; it returns what is left otherwise.
func (h *house) grown(t testing.TB, before holds, wait time.Duration) string {
	t.Helper()
	for end := time.Now().Add(wait); ; time.Sleep(100 * time.Microsecond) {
		now := h.holds(t)
		if now.objects == before.objects && maps.Equal(now.used, before.used) && now.clients == before.clients && len(now.files) <= len(before.files) && now.routines <= before.routines {
			return ""
		}
		if time.Now().After(end) {
			opened := maps.Clone(now.files)
			maps.DeleteFunc(opened, func(fd, is string) bool { return before.files[fd] == is })
			return fmt.Sprintf("the daemon holds %v, before %v; files that are new: %v", now, before, opened)
		}
	}
}

// footprint is what grows slowly: live objects, their bytes, and mappings of the process.
type footprint struct {
	objects, bytes uint64
	mappings       int
}

func footprintOf(t testing.TB) footprint {
	t.Helper()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b, err := os.ReadFile("/proc/self/maps")
	must(t, err)
	return footprint{m.HeapObjects, m.HeapAlloc, strings.Count(string(b), "\n")}
}

// wholeScript is a script in which each command of libibverbs and of librdmacm succeeds.
func wholeScript(t testing.TB) (s script) {
	t.Helper()
	verb := func(op uverbs.Op, more ...byte) {
		for i := range commands {
			if commands[i].op == op {
				s = append(s, append(append([]byte{byte(i)}, more...), make([]byte, stepLen-1-len(more))...)...)
				return
			}
		}
		t.Fatalf("no command %#x", uint32(op))
	}
	cm := func(op ucma.Op, more ...byte) {
		for i := range managerCommands {
			if managerCommands[i].op == op {
				s = append(s, append(append([]byte{byte(managerSteps + i)}, more...), make([]byte, stepLen-1-len(more))...)...)
				return
			}
		}
		t.Fatalf("no command %d", op)
	}
	other := func(i int, more ...byte) {
		s = append(s, append(append([]byte{byte(otherSteps + i)}, more...), make([]byte, stepLen-1-len(more))...)...)
	}
	last := 0
	for i := range commands { // up to queue pairs
		if commands[i].op == uverbs.CreateQP {
			last = i
			break
		}
		verb(commands[i].op)
	}
	verb(uverbs.CreateQP, 0, 4) // a target, which OpenQP opens
	verb(uverbs.OpenQP)
	verb(uverbs.CreateQP|uverbs.Extended, 0, 2) // datagrams
	verb(uverbs.AttachMulticast)
	verb(uverbs.DetachMulticast)
	verb(uverbs.CreateQP) // RC
	verb(uverbs.UseRing)
	other(4, 0, byte(sendring.Wait))
	other(4, 1, byte(sendring.Write))
	for range 3 {
		verb(uverbs.ModifyQP)
	}
	verb(uverbs.Doorbell, 0, 2)
	verb(uverbs.QueryQP)
	verb(uverbs.CreateQP)
	verb(uverbs.ModifyQP | uverbs.Extended)
	verb(uverbs.ModifyQP)
	verb(uverbs.ModifyQP)
	for _, op := range []byte{0, 2, 4, 5, 6, 8, 14, 15, 28, 29} {
		other(1, 1, 0)
		other(0, 0, op, 16)
	}
	verb(uverbs.PostSend)
	other(10)
	for i := last; i < len(commands); i++ {
		if op := commands[i].op; op == uverbs.Repost || op == uverbs.ShareMemory || op == uverbs.UnshareMemory {
			verb(op)
		}
	}
	// A connection on this host: the identifiers are the listener, the initiator, and the request's.
	cm(ucma.OpenChannel)
	cm(ucma.CreateID)
	cm(ucma.SetOption)
	cm(ucma.BindIP)
	cm(ucma.Listen, 0, 4)
	for range 2 { // the first is accepted, the second is rejected
		cm(ucma.CreateID)
		cm(ucma.ResolveIP)
		cm(ucma.GetEvent)
		cm(ucma.ResolveRoute)
		cm(ucma.GetEvent)
		cm(ucma.QueryRoute)
		cm(ucma.InitQPAttr)
		cm(ucma.Connect)
		other(10)
		cm(ucma.GetEvent)
		cm(ucma.Accept)
		cm(ucma.Reject)
		other(10)
		cm(ucma.GetEvent)
		cm(ucma.Accept, 1)
		cm(ucma.Notify, 1, 4)
		cm(ucma.Disconnect, 1)
		cm(ucma.GetEvent)
		cm(ucma.GetEvent)
	}
	cm(ucma.CreateID, 0, 0)
	cm(ucma.ResolveIP)
	cm(ucma.GetEvent)
	cm(ucma.ResolveRoute)
	cm(ucma.GetEvent)
	cm(ucma.Connect)
	other(10)
	cm(ucma.GetEvent)
	cm(ucma.Reject)
	cm(ucma.MigrateID, 1)
	cm(ucma.WriteEvent, 1)
	cm(ucma.CreateID, 0, 1, 1) // of datagrams
	cm(ucma.BindIP, 0, 2)
	cm(ucma.ResolveIP, 0, toGroup)
	cm(ucma.JoinIPMulticast)
	cm(ucma.LeaveMulticast)
	cm(ucma.JoinMulticast)
	cm(ucma.DestroyID)
	for i := last; i < len(commands); i++ {
		switch op := commands[i].op; op {
		case uverbs.DestroyQP, uverbs.DestroySRQ, uverbs.DestroyCQ: // each such object, because they refer to others
			for o := range byte(5) {
				verb(op, o)
			}
		case uverbs.DestroyAH, uverbs.CloseXRCD, uverbs.DeallocMW, uverbs.DeregMR, uverbs.FreeDM, uverbs.DeallocPD:
			verb(op, 0)
			verb(op, 1)
		}
	}
	verb(uverbs.DeallocPD)
	cm(ucma.CloseChannel)
	return s
}

// hostileHouse is a house with neighbours, and what hostile programs need.
func hostileHouse(t testing.TB) (h *house, n *neighbours, mem *lender, file int, cut *cuts) {
	t.Helper()
	cut = &cuts{}
	h = newHouseOf(t, serve.Limits{QPs: 24, CQs: 24, MRs: 24, PDs: 24, SRQs: 24, AHs: 24, MWs: 24, Memories: 24, QueueBytes: 1 << 24, Manager: serve.ManagerLimits{Channels: 16, IDs: 32}},
		-1, engine.Limits{}, func(c *serve.Config) { c.Log = slog.New(cut) })
	h.timeout = 16 // of the neighbours, eight times 0.27 s: a fuzzer's processes may wait for a processor
	path := xrcFile(t)
	file, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { must(t, unix.Close(file)) })
	return h, h.neighbours(t, path), newLender(t), file, cut
}

// opsOf are the numbers of commands that a source of this repository declares with type Op, without flags.
func opsOf(t *testing.T, path string) (names []string) {
	t.Helper()
	f, err := parser.ParseFile(gotoken.NewFileSet(), path, nil, 0)
	must(t, err)
	ast.Inspect(f, func(n ast.Node) bool {
		g, ok := n.(*ast.GenDecl)
		if !ok || g.Tok != gotoken.CONST {
			return true
		}
		typed := false // the constants behind one with a type and iota have it too
		for _, spec := range g.Specs {
			v := spec.(*ast.ValueSpec)
			id, isName := v.Type.(*ast.Ident)
			typed = isName && id.Name == "Op" || v.Type == nil && len(v.Values) == 0 && typed
			if typed {
				names = append(names, v.Names[0].Name)
			}
		}
		return true
	})
	return names
}

// The script that the fuzzer starts with has each command of both interfaces, and each succeeds: what the fuzzer makes
// of it reaches all of them.
func TestEveryCommandIsFuzzed(t *testing.T) {
	for path, has := range map[string]int{"command.go": len(verbsNamed), "../ucma/abi.go": len(managerNamed)} {
		named := map[string]bool{}
		for name := range verbsNamed {
			named[name] = true
		}
		for name := range managerNamed {
			named[name] = true
		}
		names := opsOf(t, path)
		if len(names) != has {
			t.Errorf("%s has %d commands, the fuzzer %d", path, len(names), has)
		}
		for _, name := range names {
			if !named[name] {
				t.Errorf("%s of %s is not fuzzed", name, path)
			}
		}
	}
	h, n, mem, file, _ := hostileHouse(t)
	before := h.holds(t)
	x := h.hostile(t, mem, file)
	x.guard = n.guarded()
	x.follow(wholeScript(t))
	for name, op := range verbsNamed {
		if op != uverbs.Extended && x.done[op] == 0 {
			t.Errorf("%s has not succeeded", name)
		}
	}
	for i := range commands {
		if op := commands[i].op; x.done[op] == 0 {
			t.Errorf("command %#x has not succeeded", uint32(op))
		}
	}
	for name, op := range managerNamed {
		if x.managed[op] == 0 && op != ucma.GetOption { // which no kernel has either
			t.Errorf("%s has not succeeded", name)
		}
	}
	n.unmoved()
	x.leave()
	if s := h.grown(t, before, leftFor); s != "" {
		t.Error(s)
	}
}

// Whatever a program does by commands of libibverbs and librdmacm, its rings, its send ring, its bells, a child of fork and
// descriptors, and in whatever order: its neighbours' objects stay as they are and work, and when it has ended
// nothing of it is left.
func FuzzProgram(f *testing.F) {
	whole := wholeScript(f)
	f.Add([]byte(whole))
	for from := 0; from < len(whole); from += 40 * stepLen {
		f.Add([]byte(whole[:min(from+40*stepLen, len(whole))]))
	}
	h, n, mem, file, cut := hostileHouse(f)
	var before holds
	runs := 0
	var first footprint
	f.Fuzz(func(t *testing.T, b []byte) {
		n.t = t
		for _, e := range []*ends{n.a, n.b, n.xrc} {
			e.client.t = t
		}
		n.m.t = t
		clear(mem.bytes[:ringAt+ringBlocks*64])
		if runs == 0 {
			before = h.holds(t) // with the goroutine of this function
		}
		x := h.hostile(t, mem, file)
		x.guard = n.guarded()
		x.follow(b)
		n.unmoved()
		x.leave()
		if s := h.grown(t, before, leftFor); s != "" {
			t.Fatal(s)
		}
		if x.cut && !cut.ruled(leftFor) {
			t.Fatal("the daemon has ended the connection of a program that kept the rules of the rings")
		}
		cut.forget()
		switch runs++; {
		case runs == 64:
			first = footprintOf(t)
		case runs%64 == 0:
			if now := footprintOf(t); now.objects > first.objects+objectGrowth || now.bytes > first.bytes+byteGrowth || now.mappings > first.mappings+mappingGrowth {
				t.Fatalf("after %d programs: %+v, after 64: %+v", runs, now, first)
			}
		}
	})
}

// Bounds of what a fuzzer's process may grow by in all its runs. A process of the fuzzer copies its inputs' memory,
// 100 MiB, when it finds something new.
const (
	objectGrowth  = 20000
	byteGrowth    = 128 << 20
	mappingGrowth = 64
)
