package serve

import (
	"net"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
)

// An application whose answer cannot be queued is cut off, because it would wait for that answer
// without end.
func TestAnswerThatFindsNoRoom(t *testing.T) {
	c, program := unread(t)
	if err := c.answer(7, proto.Handle{H: 1}, nil, nil); err == nil {
		t.Fatal("there was room")
	}
	if n, err := program.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the application still has its connection: %d, %v", n, err)
	}
}

// Calls that may wait have goroutines of their own, also while their answers find no room. The
// number of these goroutines is bounded.
func TestGoroutinesWithoutRoomForAnswers(t *testing.T) {
	c, _ := unread(t)
	most := c.bounds.all.Waits + maxOutgoing
	var err error
	n := 0
	for ; err == nil && n <= 2*most; n++ {
		err = c.dispatch(proto.Request{ID: uint64(n + 1), Op: proto.OpDisconnect, Args: []byte(`{"h":77,"timeout":0}`)})
		for waiting := true; waiting; runtime.Gosched() { // no two of them wait at the same time
			c.execute.calls.mu.Lock()
			waiting = c.execute.calls.waits > 0
			c.execute.calls.mu.Unlock()
		}
	}
	if err == nil || n > most+1 {
		t.Errorf("%d calls were begun, %d may be: %v", n, most, err)
	}
	c.tasks.Wait()
}

// An application that was stopped together with the daemon, by `rdmalab hang`, is not cut off for
// messages that it did not read in that time.
func TestStoppedTogether(t *testing.T) {
	c, program := unread(t)
	raw, err := c.conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	filled := 0
	_ = raw.Control(func(fd uintptr) {
		for unix.Send(int(fd), []byte("old"), unix.MSG_DONTWAIT) == nil {
			filled++
		}
	})
	sent := make(chan error, 1)
	go func() { sent <- c.send(outgoing{data: []byte("new")}) }()
	if out, err := exec.Command("sh", "-c", "trap '' INT HUP TERM; sleep 0.1; kill -STOP $PPID; sleep 2.2; kill -CONT $PPID").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	b := make([]byte, 3)
	for range filled {
		if _, err := program.Read(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if n, err := program.Read(b); string(b[:n]) != "new" || err != nil {
		t.Errorf("%q, %v", b[:n], err)
	}
}

// A program that has received a descriptor and closed it has closed the last one, once the daemon has
// settled: otherwise a program at its limit of channels could be refused one.
func TestSettledDescriptorsAreClosed(t *testing.T) {
	c, program := unread(t)
	_ = c.discard()
	go c.write()
	defer close(c.gone)
	b, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	for i := range 2000 {
		q := new(eventQueue)
		fd, err := q.open()
		if err != nil {
			t.Fatal(err)
		}
		c.out <- outgoing{b, []int{fd}}
		_, n, _, _, err := program.(*net.UnixConn).ReadMsgUnix(b, oob)
		if err != nil {
			t.Fatal(err)
		}
		list, err := unix.ParseSocketControlMessage(oob[:n])
		if err != nil {
			t.Fatal(err)
		}
		fds, err := unix.ParseUnixRights(&list[0])
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fds[0])
		c.settle()
		if !isAbandoned(q) {
			t.Fatalf("descriptor %d is open", i)
		}
		q.close()
	}
}

// unread is a client whose queue of answers is full, and the other end of its connection.
func unread(t *testing.T) (*client, net.Conn) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := [2]net.Conn{}
	for i, fd := range pair {
		f := os.NewFile(uintptr(fd), "pair")
		if ends[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		_ = f.Close() // the connection has a copy
		t.Cleanup(func() { _ = ends[i].Close() })
	}
	s := new(Server)
	s.bounds.Store(newBounds(Limits{Waits: 4}))
	c := s.newClient(1, ends[0].(*net.UnixConn), nil)
	for range maxOutgoing {
		c.out <- outgoing{}
	}
	return c, ends[1]
}
