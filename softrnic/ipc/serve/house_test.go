package serve

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// house is a NIC that is served to programs of this process.
type house struct {
	dev *device.Device
	s   *Server
}

var houseIP = netip.MustParseAddr("10.77.0.1")

func newHouse(t *testing.T) *house {
	t.Helper()
	port, _ := memcable.Pair(memcable.Config{})
	d, err := device.Open(device.Config{
		Port: port, Waiter: memcable.NewWaiter(port), Spin: -1,
		Engine: engine.Config{
			Name: "nic", MAC: wire.MAC{2, 0, 0, 0, 0, 1}, GIDs: []verbs.GID{verbs.GIDOf(houseIP)}, Rand: rand.New(rand.NewPCG(1, 9)),
			Resolve: func(netip.Addr) (wire.MAC, bool) { return wire.MAC{2, 0, 0, 0, 0, 1}, true },
		},
	})
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	s, err := Listen(Config{Path: filepath.Join(t.TempDir(), "verbs.sock"), Open: d.Context, Spin: -1})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return &house{d, s}
}

// open attaches a program over package ipc.
func (h *house) open(t *testing.T) *ipc.Context {
	t.Helper()
	c, err := ipc.Open(ipc.Config{Socket: h.s.cfg.Path, Name: t.Name()})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// unmodified is an unmodified program: the connection of its preloaded library.
type unmodified struct {
	t    *testing.T
	conn *net.UnixConn
}

// attach attaches an unmodified program.
func (h *house) attach(t *testing.T) *unmodified {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: h.s.cfg.Path, Net: "unixpacket"})
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	u := &unmodified{t, conn}
	first := make([]byte, uverbs.HelloLen)
	copy(first, uverbs.Magic+"program")
	mem, err := unix.Open("/proc/self/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(t, err)
	maps, err := unix.Open("/proc/self/maps", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	_, _, err = conn.WriteMsgUnix(first, unix.UnixRights(mem, maps), nil)
	must(t, errors.Join(err, closeAll([]int{mem, maps})))
	if _, errno := u.answer(); errno != 0 {
		t.Fatal(errno)
	}
	return u
}

// answer receives an answer. Its descriptors stay open until the test ends.
func (u *unmodified) answer() (data []byte, errno unix.Errno) {
	u.t.Helper()
	must(u.t, u.conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	b, oob := make([]byte, 8192), make([]byte, 128)
	n, oobn, _, _, err := u.conn.ReadMsgUnix(b, oob)
	must(u.t, err)
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	must(u.t, err)
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		must(u.t, err)
		u.t.Cleanup(func() { _ = closeAll(fds) })
	}
	return b[uverbs.AnswerLen:n], unix.Errno(binary.NativeEndian.Uint32(b))
}

// do executes a command, which must succeed, and returns the first number of its answer. The
// arguments include the place of the pointer to the answer, if the command has one.
func (u *unmodified) do(op uverbs.Op, args ...any) uint32 {
	u.t.Helper()
	data, errno := u.raw(op, args...)
	if errno != 0 {
		u.t.Fatalf("command %d: %v", op, errno)
	}
	if len(data) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(data)
}

// raw executes a command as do does, which may fail.
func (u *unmodified) raw(op uverbs.Op, args ...any) (data []byte, errno unix.Errno) {
	u.t.Helper()
	_, err := u.conn.Write(append(uverbs.Encode(uverbs.NoChannel, uint32(0), uint32(op), uint32(0)), uverbs.Encode(args...)...))
	must(u.t, err)
	return u.answer()
}

// pointer is the place of the pointer to the answer.
const pointer = uint64(0)
