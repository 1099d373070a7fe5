package serve

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
)

// An application that cannot be given an answer is cut off: one that goes on would wait for that answer for ever.
func TestAnswerThatFindsNoRoom(t *testing.T) {
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
		_ = f.Close() // the connection has its own
	}
	defer ends[1].Close()
	c := newClient(nil, 1, ends[0].(*net.UnixConn), nil)
	for range maxOutgoing {
		c.out <- outgoing{}
	}
	if err := c.answer(7, proto.Handle{H: 1}, nil, nil); err == nil {
		t.Fatal("there was room")
	}
	if n, err := ends[1].Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the application still has its connection: %d, %v", n, err)
	}
}
