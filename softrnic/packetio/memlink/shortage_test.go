package memlink

import (
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process without free descriptors cannot take a connection. When it has some again, hosts attach.
func TestHostsAttachAfterAShortageOfDescriptors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	_, sw := listen(t, path, Config{MTU: 1500})
	var was unix.Rlimit
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	last, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	must(err)
	defer func() { _ = unix.Close(last) }() // the listener has ended the connection
	few := was
	few.Cur = uint64(last + 1)
	must(unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	err = unix.Connect(last, &unix.SockaddrUnix{Name: path})
	time.Sleep(3 * acceptPause) // the listener fails to accept meanwhile
	must(unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
	must(err)
	conn := Connect(path, "cn0", newPort(t, Config{MTU: 1500}), discard)
	defer conn.Close()
	for end := time.Now().Add(20 * time.Second); !sw.Attached(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the listener takes no connection any more")
		}
	}
}
