package ipc_test

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
)

// A program with another version of the protocol is told why it may not attach, every time.
func TestOtherVersions(t *testing.T) {
	h := newHouse(t, 0, nil)
	for i := range 100 {
		conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: h.sockets[0], Net: "unixpacket"})
		must(t, err)
		a := &attacker{conn: conn, wake: -1}
		err = a.call(proto.OpHello, proto.Hello{Version: proto.Version - 1}, nil)
		a.leave()
		if err == nil || !strings.Contains(err.Error(), "version 6 of the protocol; this daemon speaks 7") {
			t.Fatalf("attempt %d: %v", i, err)
		}
	}
	h.empty(t)
}

// If the daemon closes the connection without a message, the program's error says that the daemon
// may have version 1, which does so.
func TestSilentRefusal(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "old.sock")
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	must(t, err)
	go func() {
		if conn, err := ln.AcceptUnix(); err == nil {
			_, _ = conn.Read(make([]byte, proto.MaxMessage))
			_ = conn.Close()
		}
	}()
	_, err = ipc.Open(ipc.Config{Socket: socket})
	must(t, ln.Close())
	if err == nil || !strings.Contains(err.Error(), "another version") {
		t.Errorf("Open: %v", err)
	}
}
