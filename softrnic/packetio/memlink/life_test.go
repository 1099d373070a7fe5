package memlink

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// stranger is a host that speaks the protocol of the socket and then does as it likes.
type stranger struct {
	conn *net.UnixConn
	mem  []byte
	// bell is the descriptor that the switch wakes it by. heard is the other end of that socket.
	bell, heard int
}

// dial connects to the switch as host cn0 with a bell.
func dial(t *testing.T, path string, bell int) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix(network, nil, &net.UnixAddr{Name: path, Net: network})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // a test may have closed it
	if err := send(conn, hello{Host: "cn0", layout: ours}, bell); err != nil {
		t.Fatal(err)
	}
	return conn
}

// newStranger attaches a stranger to the link of cn0.
func newStranger(t *testing.T, path string) *stranger {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ring.CloseFiles(pair[:]...) })
	conn := dial(t, path, pair[1])
	var w welcome
	fds, err := receive(conn, &w, 2)
	if err != nil || len(fds) != 2 {
		t.Fatalf("%+v, %v", w, err)
	}
	defer ring.CloseFiles(fds...)
	mem, err := mapMemory(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	return &stranger{conn: conn, mem: mem, heard: pair[0], bell: pair[1]}
}

// A host that makes its bell a descriptor whose writers wait, fills it, and says that it sleeps,
// does not stop the switch.
func TestFullBellOfAHost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "links.sock")
	_, sw := listen(t, path, Config{MTU: 1500})
	s := newStranger(t, path)
	eventually(t, "the link is attached", sw.Attached)
	if err := unix.SetNonblock(s.bell, false); err != nil {
		t.Fatal(err)
	}
	for unix.Send(s.bell, []byte{0}, unix.MSG_DONTWAIT) == nil {
		continue
	}
	const toHost = 1
	asleep := wordsOf(s.mem[toHost*directLen:]).asleep
	sent := make(chan error, 1)
	go func() {
		for range 3 {
			asleep.Store(1)
			if n, err := sw.Send(one100()); n != 1 || err != nil {
				sent <- errors.Join(errors.New("the frame was not sent"), err)
				return
			}
		}
		sent <- nil
	}()
	select {
	case err := <-sent:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("the switch waits for a bell of a host")
		for { // free it
			var b [1]byte
			if _, err := unix.Read(s.heard, b[:]); err != nil || len(sent) > 0 {
				return
			}
		}
	}
}

// A bell is a socket on which a message can be sent without waiting; a host with another descriptor
// is refused.
func TestBellOfAnotherKind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "links.sock")
	_, sw := listen(t, path, Config{MTU: 1500})
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer ring.CloseFiles(event)
	inet, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer ring.CloseFiles(inet)
	stream, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer ring.CloseFiles(stream[:]...)
	for _, fd := range []int{event, inet, stream[0]} {
		conn := dial(t, path, fd)
		answer := make([]byte, maxMessage)
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(answer)
		var w welcome
		if err != nil || json.Unmarshal(answer[:n], &w) != nil || !strings.Contains(w.Error, "bell") {
			t.Errorf("answer %s, %v", answer[:n], err)
		}
	}
	if sw.Attached() {
		t.Error("the link is attached")
	}
}

// A host that connects again takes the link over; the connection of the former one ends.
func TestReplacedLinkIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "links.sock")
	_, sw := listen(t, path, Config{MTU: 1500})
	s := newStranger(t, path)
	eventually(t, "the link is attached", sw.Attached)
	newStranger(t, path)
	if err := s.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if n, err := s.conn.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the former host is told nothing: %d, %v", n, err)
	}
	eventually(t, "the new link is attached", sw.Attached)
}

// A port that was closed while its host joined ends the link, and keeps nothing of it.
func TestClosedWhileAHostJoins(t *testing.T) {
	maps := mappings(t)
	path := filepath.Join(t.TempDir(), "links.sock")
	l, _ := listen(t, path, Config{MTU: 1500})
	p, err := l.Port("cn1", Config{MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer ring.CloseFiles(pair[1])
	file := os.NewFile(uintptr(pair[0]), "host")
	c, err := net.FileConn(file)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := newBell()
	if err != nil {
		t.Fatal(err)
	}
	defer ring.CloseFiles(b.ours)
	j, err := l.join(c.(*net.UnixConn), &hello{Host: "cn1", layout: ours}, p, b.theirs)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if p.attach(j) {
		t.Error("a closed port was attached")
	}
	if !j.gone.Load() || c.SetDeadline(time.Time{}) == nil {
		t.Error("the host keeps its connection")
	}
	if n := mappings(t); n != maps {
		t.Errorf("%d mappings are left", n-maps)
	}
}

// What is lost with a link is counted: the frames of a Send that finds the link broken, and those
// that the former link still held.
func TestDropsOfABrokenLink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "links.sock")
	_, sw := listen(t, path, Config{MTU: 1500})
	s := newStranger(t, path)
	eventually(t, "the link is attached", sw.Attached)
	var b packetio.Batch
	for range Slots {
		b.Add(0, make([]byte, 100))
	}
	mustSend(t, sw, &b, Slots)
	const toSwitch, toHost = 0, 1
	wordsOf(s.mem[toHost*directLen:]).head.Store(1 << 40) // no position of this ring
	b.Frames = b.Frames[:7]
	mustSend(t, sw, &b, 0)
	if st := sw.Stats(); st.TxDropped != 7 || st.TxPackets != Slots {
		t.Errorf("sent into a broken link: %+v", st)
	}
	eventually(t, "the link has ended", func() bool { return !sw.Attached() })

	s = newStranger(t, path)
	eventually(t, "the link is attached", sw.Attached)
	out := newSender(s.mem[toSwitch*directLen : (toSwitch+1)*directLen])
	super := packetio.Frame{Data: roceSuper(5, 40), SegSize: 60}
	for _, f := range []packetio.Frame{{Data: make([]byte, 100)}, super} {
		mem, offset, ok := out.reserve(len(f.Data))
		if !ok {
			t.Fatal("no room")
		}
		copy(mem, f.Data)
		out.commit(offset, len(f.Data), &f)
	}
	out.publish()
	out.drop(3)
	newStranger(t, path)
	want := uint64(1 + super.Packets() + 3)
	eventually(t, "the frames of the former link are counted", func() bool { return sw.Stats().RxDropped == want })
}

// roceSuper is a super-frame of n packets of size bytes behind the UDP header.
func roceSuper(n, size int) []byte {
	b := bytes.Repeat([]byte{0}, 42+n*size)
	b[12], b[14], b[23], b[36], b[37] = 8, 0x45, 17, 0x12, 0xb7
	return b
}
