package uverbs_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/ucma"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// lentVariable is set in the environment of a test binary that runs lent.
const lentVariable = "RDMALAB_TEST_LENT"

// lentLen is the size in bytes of the memory that such a process maps, and shares with the test.
const lentLen = 1 << 20

// lend is a process that only has memory: it maps the file of descriptor 3 and private memory, prints both
// addresses, and stops itself.
func lend() error {
	shared, err := unix.Mmap(3, 0, lentLen, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	private, err := unix.Mmap(-1, 0, lentLen, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	fmt.Println(addr(shared), addr(private))
	for {
		if err := unix.Kill(os.Getpid(), unix.SIGSTOP); err != nil {
			return err
		}
	}
}

// lender is a stopped process whose memory is that of hostile programs. They register any of its addresses,
// and so may change all of it; the process of the test must not be changed in this way.
type lender struct {
	pid             int
	shared, private uint64 // addresses in the process
	bytes           []byte // of the memory at shared
}

func newLender(t testing.TB) *lender {
	t.Helper()
	fd, err := unix.MemfdCreate("lent", unix.MFD_CLOEXEC)
	must(t, err)
	must(t, unix.Ftruncate(fd, lentLen))
	b, err := unix.Mmap(fd, 0, lentLen, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	file := os.NewFile(uintptr(fd), "lent")
	defer file.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), lentVariable+"=1")
	cmd.ExtraFiles = []*os.File{file}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		must(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
		must(t, unix.Munmap(b))
	})
	l := &lender{pid: cmd.Process.Pid, bytes: b}
	_, err = fmt.Fscan(out, &l.shared, &l.private)
	must(t, err)
	return l
}

// files opens memory and maps of the lender, for a first message.
func (l *lender) files(t testing.TB) []int {
	t.Helper()
	return openAll(t, fmt.Sprintf("/proc/%d/mem", l.pid), fmt.Sprintf("/proc/%d/maps", l.pid))
}

// script is what a hostile program does, one step after the other; see step.
type script []byte

// stepLen is the number of bytes of a step of a script.
const stepLen = 8

// step is a step of a script. With zeros behind the kind it does something that is right, with the objects
// that were made last. Object says which of them: 0 is the newest, and from 200 on it is the handle itself. One and Two
// choose among variants. Each Change is a byte of the arguments, by its place, and what it is changed by.
type step struct {
	Kind, Object, One, Two uint8
	Change                 [2][2]uint8
}

func (s script) next() (st step, rest script, ok bool) {
	if len(s) < stepLen {
		return st, nil, false
	}
	return step{s[0], s[1], s[2], s[3], [2][2]uint8{{s[4], s[5]}, {s[6], s[7]}}}, s[stepLen:], true
}

// change makes the changes of a step in b.
func (s *step) change(b []byte) []byte {
	for _, c := range s.Change {
		if len(b) > 0 {
			b[int(c[0])%len(b)] ^= c[1]
		}
	}
	if s.Two == 255 {
		b = b[:len(b)/2]
	}
	return b
}

// kind is a kind of objects of libibverbs or librdmacm, each with its own handles.
type kind int

const (
	noKind kind = iota
	pdKind
	mrKind
	mwKind
	ahKind
	channelKind
	cqKind
	qpKind
	srqKind
	xrcdKind
	dmKind
	idKind   // identifiers of librdmacm
	joinKind // memberships in groups
	kinds
)

// hostile is a program that follows a script.
type hostile struct {
	t     testing.TB
	h     *house
	mem   *lender
	file  int // of XRC domains
	guard map[uint32]bool

	c       *client
	child   *client // nil: none
	m       *manager
	have    [kinds][]uint32
	rings   []uverbs.Ring
	send    uverbs.Ring // the newest, if sends
	sends   bool
	bell    uint32
	lkey    uint32
	rkey    uint32
	qpns    [2]uint32 // of the newest queue pairs
	srqn    uint32
	cqn     uint32
	ah      uint32
	states  map[uint32]uint8
	types   map[uint32]uint8
	done    map[uverbs.Op]int // commands that have succeeded
	managed map[ucma.Op]int
	cut     bool // the daemon has ended the connection
}

// hostile attaches a program to the first NIC.
func (h *house) hostile(t testing.TB, mem *lender, file int) *hostile {
	t.Helper()
	const process = "test\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" + "another process."
	return &hostile{
		t: t, h: h, mem: mem, file: file, c: h.attachAs(t, 0, uverbs.Magic+process, mem.files(t)), m: h.managesAs(t, 0, uverbs.MagicManager+process), states: map[uint32]uint8{}, types: map[uint32]uint8{},
		done: map[uverbs.Op]int{}, managed: map[ucma.Op]int{},
	}
}

// leave ends the program as a killed process ends.
func (x *hostile) leave() {
	if x.child != nil {
		x.child.close()
	}
	x.m.close()
	x.c.close()
}

// maxSteps bounds the steps of a script that are followed.
const maxSteps = 192

// follow follows a script until the daemon ends the connection, which it may for what the program writes to its rings.
func (x *hostile) follow(s script) {
	for i := 0; i < maxSteps && !x.cut; i++ {
		st, rest, ok := s.next()
		if !ok {
			return
		}
		s = rest
		switch k := int(st.Kind); {
		case k < len(commands):
			x.command(&st, &commands[k])
		case k >= managerSteps && k-managerSteps < len(managerCommands):
			x.manager(&st, &managerCommands[k-managerSteps])
		case k >= otherSteps:
			otherThings[(k-otherSteps)%len(otherThings)](x, &st)
		}
	}
}

// Kinds of steps: commands of libibverbs first, then those of librdmacm, then what a program writes.
const (
	managerSteps = 128
	otherSteps   = 192
)

// handle returns the handle of an object, as a step says.
func (x *hostile) handle(s *step, k kind) uint32 {
	all := x.have[k]
	if s.Object >= 200 || int(s.Object) >= len(all) {
		return uint32(s.Object)
	}
	return all[len(all)-1-int(s.Object)]
}

// newest returns the handle of the newest object.
func (x *hostile) newest(k kind) uint32 { return x.handle(&step{}, k) }

// commandKind is a command of a script. args returns its arguments; made says what it makes. answered is called with its answer.
type commandKind struct {
	op       uverbs.Op
	args     func(x *hostile, s *step) []any
	made     kind
	answered func(x *hostile, s *step, data []byte)
	channel  func(x *hostile, s *step) uint32
	files    func(x *hostile, s *step) []int
}

// command gives a command, and takes the answer.
func (x *hostile) command(s *step, k *commandKind) {
	args := []byte{}
	if k.args != nil {
		args = s.change(uverbs.Encode(k.args(x, s)...))
	}
	if !x.harmless(k.op, args) {
		return
	}
	by, channel, files := x.c, uverbs.NoChannel, []int(nil)
	if x.child != nil && s.One&1 != 0 {
		by = x.child
	}
	if k.channel != nil {
		channel = k.channel(x, s)
	}
	if k.files != nil {
		files = k.files(x, s)
	}
	data, errno := x.ask(by, k.op, channel, args, files...)
	if errno != 0 || x.cut {
		return
	}
	x.done[k.op]++
	if k.made != noKind && len(data) >= 4 {
		x.have[k.made] = append(x.have[k.made], binary.NativeEndian.Uint32(data))
	}
	if k.answered != nil {
		k.answered(x, s, data)
	}
}

// ask sends a command by the program or by its child, and notes when the daemon has cut the program off.
func (x *hostile) ask(by *client, op uverbs.Op, channel uint32, args []byte, files ...int) ([]byte, unix.Errno) {
	x.t.Helper()
	data, errno, ok := by.try(op, channel, args, files...)
	x.cut = !ok
	return data, errno
}

// harmless reports whether a command names no peer outside of this program. A queue pair that is told the
// number of another program's peer sends packets that are those of the other program, because packets of RC do not
// say who sends them: on hardware as here, the key is the packet sequence number alone.
func (x *hostile) harmless(op uverbs.Op, args []byte) bool {
	const dest = 2*32 + 8 + 12 // of ModifyQPArgs
	if op&^uverbs.Extended == uverbs.ModifyQP && len(args) >= dest+4 {
		return !x.guard[binary.NativeEndian.Uint32(args[dest:])]
	}
	return true
}

// manager gives a command of librdmacm.
func (x *hostile) manager(s *step, k *managerKind) {
	args := []byte{}
	if k.args != nil {
		args = s.change(uverbs.Encode(k.args(x, s)...))
	}
	channel := x.m.channel
	if s.One >= 200 {
		channel = uint32(s.One) - 200
	}
	a, fds := x.m.raw(k.op, channel, args)
	for _, fd := range fds {
		if old, ok := x.m.fds[a.Number]; ok {
			_ = unix.Close(old)
		}
		x.m.fds[a.Number] = fd
	}
	if a.Errno != 0 {
		return
	}
	x.managed[k.op]++
	if k.made != noKind && len(a.Data) >= 4 {
		x.have[k.made] = append(x.have[k.made], binary.NativeEndian.Uint32(a.Data))
	}
	if k.op == ucma.GetEvent && len(a.Data) >= 16 && binary.NativeEndian.Uint32(a.Data[12:]) == connectRequest {
		x.have[idKind] = append(x.have[idKind], binary.NativeEndian.Uint32(a.Data[8:]))
	}
}

// ringOf remembers a ring of the area.
func (x *hostile) ringOf(data []byte, at int) (r uverbs.Ring, ok bool) {
	if len(data) < at+16 {
		return r, false
	}
	var a uverbs.Area
	_, _ = binary.Decode(data[at:], binary.NativeEndian, &a) // it has enough bytes
	if a.Size == 0 || a.Offset+uint64(a.Size) > uint64(len(x.c.area)) {
		return r, false
	}
	b := x.c.area[a.Offset : a.Offset+uint64(a.Size)]
	log2, entries := binary.NativeEndian.Uint32(b), int(binary.NativeEndian.Uint32(b[4:]))
	if log2 > 12 || entries < 1 || entries > 1<<16 || uverbs.RingLen(entries, 1<<log2) > len(b) { // the program has written there
		return r, false
	}
	r = uverbs.NewRing(b, entries, 1<<log2)
	x.rings = append(x.rings, r)
	return r, true
}

// otherThings are what a program does without commands.
var otherThings = []func(x *hostile, s *step){
	func(x *hostile, s *step) { // an entry of a send queue
		if !x.sends {
			return
		}
		i := x.send.Producer()
		slot := x.send.Slot(i)
		clear(slot)
		put := func(at int, v uint32) { binary.NativeEndian.PutUint32(slot[at:], v) }
		op := uint32(s.One)
		put(12, op)
		put(16, 2)
		binary.NativeEndian.PutUint64(slot[24:], x.mem.shared+4096)
		put(32, x.rkey)
		put(184, 64)
		put(196, 1)
		switch op {
		case opCAS, opAdd, 28, 29:
			put(48, x.rkey)
			put(184, 8)
		case opFlush:
			put(32, 64)
			put(36, x.rkey)
			slot[40] = 1
		case 8: // BIND
			put(32, 64)
			put(40, x.lkey)
			put(48, x.rkey)
		}
		if s.Object != 0 { // a datagram, or a shared receive queue of XRC
			put(24, x.qpns[0])
			put(28, groupQKey)
			put(36, x.ah)
			put(72, x.srqn)
		}
		if len(slot) >= 208+16 {
			binary.NativeEndian.PutUint64(slot[208:], x.mem.shared)
			put(216, uint32(s.Two)*4)
			put(220, x.lkey)
		}
		s.change(slot)
		x.send.SetProducer(i + 1)
		x.c.bell(x.bell)
	},
	func(x *hostile, s *step) { // an entry of any ring, taken for one of receives
		if len(x.rings) == 0 {
			return
		}
		r := x.rings[len(x.rings)-1-int(s.Object)%len(x.rings)]
		i := r.Producer()
		slot := r.Slot(i)
		clear(slot)
		if len(slot) >= 56 {
			binary.NativeEndian.PutUint32(slot[28:], 1)
			binary.NativeEndian.PutUint64(slot[40:], x.mem.shared)
			binary.NativeEndian.PutUint32(slot[48:], 4096)
			binary.NativeEndian.PutUint32(slot[52:], x.lkey)
		}
		s.change(slot)
		r.SetProducer(i + 1)
		x.c.bell(uint32(s.One))
	},
	func(x *hostile, s *step) { // the indices of a ring
		if len(x.rings) == 0 {
			return
		}
		r := x.rings[len(x.rings)-1-int(s.Object)%len(x.rings)]
		v := binary.NativeEndian.Uint32([]byte{s.Change[0][0], s.Change[0][1], s.Change[1][0], s.Change[1][1]})
		if s.One&1 == 0 {
			r.SetProducer(v)
		} else {
			r.SetConsumer(v)
		}
		x.c.bell(x.bell)
	},
	func(x *hostile, s *step) { // any bytes of the control page or of the rings
		at := (int(s.Object)<<8 | int(s.One)) * 4 % (8192 + 1<<17)
		copy(x.c.area[at:], []byte{s.Change[0][0], s.Change[0][1], s.Change[1][0], s.Change[1][1]})
		x.c.bell(uint32(s.Two) * 16)
	},
	func(x *hostile, s *step) { // an entry of a send ring in the program's memory
		e := sendring.Entry{
			Op: sendring.Opcode(s.One), QPN: 0, Flags: sendring.Signalled, RemoteAddr: x.mem.shared + 4096, RKey: x.rkey, SwapAdd: 1, Compare: 0,
			Count: uint32(s.Two), Object: x.cqn,
		}
		if e.Op == sendring.Enable || e.Op == sendring.RecvEnable {
			e.Object = x.qpns[0]
		}
		if !e.Op.Control() {
			e.NSGE, e.SGL[0] = 1, verbs.SGE{Addr: x.mem.shared, Length: 8, LKey: x.lkey}
		}
		b := s.change(e.AppendTo(nil))
		copy(x.mem.bytes[ringAt+int(s.Object)%ringBlocks*sendring.BlockSize:], b)
	},
	func(x *hostile, s *step) { x.c.bell(uint32(s.Object)<<4 | uint32(s.One)) },
	func(x *hostile, s *step) { // bytes on the socket that wakes the daemon
		_ = unix.Sendto(x.c.wake, s.change(make([]byte, 1+int(s.One)*16)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
	},
	func(x *hostile, s *step) { // a child of fork comes or goes
		if x.child != nil {
			x.child.close()
			x.child = nil
			return
		}
		x.child = x.fork()
	},
	func(x *hostile, s *step) { // a descriptor of an event channel is closed, or read
		if len(x.c.fds) <= uverbs.WelcomeFDs {
			return
		}
		i := uverbs.WelcomeFDs + int(s.Object)%(len(x.c.fds)-uverbs.WelcomeFDs)
		if s.One&1 == 0 {
			var b [64]byte
			_, _, _ = unix.Recvfrom(x.c.fds[i], b[:], unix.MSG_DONTWAIT)
			return
		}
		_ = unix.Close(x.c.fds[i])
		x.c.fds = append(x.c.fds[:i], x.c.fds[i+1:]...)
	},
	func(x *hostile, s *step) { // any command with any short arguments
		op := uverbs.Op(binary.NativeEndian.Uint16([]byte{s.Object, s.One}))
		if s.Two&1 != 0 {
			op |= uverbs.Extended
		}
		if s.Two&2 != 0 {
			op |= 0x7fff0000
		}
		args := make([]byte, int(s.Two)*2)
		s.change(args)
		if x.harmless(op, args) {
			x.ask(x.c, op, uint32(s.Change[1][1])%4, args)
		}
	},
	func(*hostile, *step) { time.Sleep(time.Millisecond) }, // the NIC and the peer go on meanwhile
}

// fork joins as a child of fork; nil if the daemon refuses that.
func (x *hostile) fork() *client {
	area, err := unix.FcntlInt(uintptr(x.c.fds[uverbs.WelcomeArea]), unix.F_DUPFD_CLOEXEC, 0)
	must(x.t, err)
	files := append(x.mem.files(x.t), area)
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: x.h.sockets[0], Net: "unixpacket"})
	must(x.t, err)
	_, _, err = conn.WriteMsgUnix([]byte(magicChild), unix.UnixRights(files...), nil)
	for _, fd := range files {
		err = errors.Join(err, unix.Close(fd))
	}
	must(x.t, err)
	_, errno, _, ok := receive(x.t, conn)
	if !ok || errno != 0 {
		_ = conn.Close()
		return nil
	}
	return &client{t: x.t, conn: conn}
}

// Places in the lent memory: of the send ring, and its size.
const (
	ringAt     = 64 << 10
	ringBlocks = 16
)

// managerKind is a command of librdmacm of a script.
type managerKind struct {
	op   ucma.Op
	args func(x *hostile, s *step) []any
	made kind
}

// at is an address with a port that a step chooses, of this host or of the other one, or of a group.
func at(s *step) [28]byte {
	if s.One == toGroup {
		return groupAt()
	}
	return sockaddr(netip.AddrPortFrom(ips[s.One&1], 6000+uint16(s.One>>1)))
}

// toGroup is a value of One for which at is groupAt.
const toGroup = 255

// groupAt is a multicast group in the same form.
func groupAt() [28]byte {
	return sockaddr(netip.AddrPortFrom(netip.AddrFrom4([4]byte{239, 1, 2, 3}), 0))
}

// id returns an identifier, as a step says.
func (x *hostile) id(s *step) uint32 { return x.handle(s, idKind) }

// managerCommands are all commands of package ucma, and two that it does not know.
var managerCommands = []managerKind{
	{op: ucma.CreateID, made: idKind, args: func(_ *hostile, s *step) []any {
		spaces := []uint16{spaceTCP, spaceUDP, 0x013f}
		types := []uint8{0, uverbs.TypeUD, uverbs.TypeRC, uverbs.TypeXRCInitiator, uverbs.TypeXRCTarget}
		return []any{1 + uint64(s.One), uint64(0), spaces[s.One%3], types[int(s.Two)%len(types)], [5]uint8{}}
	}},
	{op: ucma.DestroyID, args: func(x *hostile, s *step) []any { return []any{uint64(0), x.id(s), uint32(0)} }},
	{op: ucma.BindIP, args: func(x *hostile, s *step) []any { return []any{uint64(0), at(s), x.id(s)} }},
	{op: ucma.ResolveIP, args: func(x *hostile, s *step) []any { return []any{[28]byte{}, at(s), x.id(s), uint32(1000)} }},
	{op: ucma.ResolveRoute, args: func(x *hostile, s *step) []any { return []any{x.id(s), uint32(1000)} }},
	{op: ucma.QueryRoute, args: func(x *hostile, s *step) []any { return []any{uint64(0), x.id(s), uint32(0)} }},
	{op: ucma.Connect, args: func(x *hostile, s *step) []any {
		return []any{terms(x.qpns[0], "words"), x.id(s), uint32(0), [2]uint32{}}
	}},
	{op: ucma.Listen, args: func(x *hostile, s *step) []any { return []any{x.id(s), uint32(s.One)} }},
	{op: ucma.Accept, args: func(x *hostile, s *step) []any {
		return []any{uint64(s.One), terms(x.qpns[(1+s.Two)%2], "words"), x.id(s), uint32(0), [2]uint32{}}
	}},
	{op: ucma.Reject, args: func(x *hostile, s *step) []any { return []any{x.id(s), uint8(3), s.One, [2]uint8{}, [256]byte{}} }},
	{op: ucma.Disconnect, args: func(x *hostile, s *step) []any { return []any{x.id(s)} }},
	{op: ucma.InitQPAttr, args: func(x *hostile, s *step) []any { return []any{uint64(0), x.id(s), uint32(s.One%4 + 1)} }},
	{op: ucma.GetEvent, args: func(*hostile, *step) []any { return []any{uint64(0)} }},
	{op: ucma.GetOption, args: func(x *hostile, s *step) []any { return []any{uint64(0), x.id(s), uint32(0), uint32(s.One), uint32(4)} }},
	{op: ucma.SetOption, args: func(x *hostile, s *step) []any {
		n := []uint32{1, 4, 4, 1}[s.One%4]
		return []any{uint64(0), x.id(s), uint32(0), uint32(s.One % 4), n, [4]uint8{4}}
	}},
	{op: ucma.Notify, args: func(x *hostile, s *step) []any { return []any{x.id(s), uint32(s.One)} }},
	{op: ucma.JoinIPMulticast, made: joinKind, args: func(x *hostile, s *step) []any { return []any{uint64(0), 1 + uint64(s.One), groupAt(), x.id(s)} }},
	{op: ucma.JoinMulticast, made: joinKind, args: func(x *hostile, s *step) []any {
		a := groupAt()
		var wide [128]byte
		copy(wide[:], a[:])
		return []any{uint64(0), 1 + uint64(s.One), x.id(s), uint16(28), uint16(s.One & 1), wide}
	}},
	{op: ucma.LeaveMulticast, args: func(x *hostile, s *step) []any { return []any{uint64(0), x.handle(s, joinKind), uint32(0)} }},
	{op: ucma.MigrateID, args: func(x *hostile, s *step) []any { return []any{uint64(0), x.id(s), uint32(s.One)} }},
	{op: ucma.OpenChannel},
	{op: ucma.CloseChannel},
	{op: ucma.WriteEvent, args: func(x *hostile, s *step) []any {
		return []any{x.id(s), uint32(0), uint32(18 + s.One%3), uint32(s.Two), uint64(s.Two)}
	}},
	{op: ucma.Op(20), args: func(*hostile, *step) []any { return []any{[64]byte{}} }},
}
