package memlink

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
)

// Limits of the connection by which a host and the switch set up a link.
const (
	// network is the type of the socket, which preserves message boundaries.
	network = "unixpacket"
	// answerWait is how long one side waits for the other's message.
	answerWait = 2 * time.Second
	maxMessage = 4096
	// mostFDs is the largest number of descriptors in a message.
	mostFDs = 2
)

// hello is the first message of a host. It carries the descriptor that rings the host's bell.
type hello struct {
	Host string `json:"host"`
	layout
}

// welcome is the switch's answer. It carries two descriptors: the memory, and the one that rings
// the switch's bell.
type welcome struct {
	Error string `json:"error,omitempty"`
	layout
}

// layout has the numbers on which the memory layout of a link depends: the constants Slots,
// DataBytes and entryLen. A host and a switch with different ones cannot use a link.
type layout struct {
	Slots int `json:"slots"`
	Data  int `json:"data"`
	Entry int `json:"entry"`
}

// ours is the layout of this build.
var ours = layout{Slots, DataBytes, entryLen}

// send sends a message with descriptors. The caller still owns them.
func send(conn *net.UnixConn, message any, fds ...int) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if err = conn.SetWriteDeadline(time.Now().Add(answerWait)); err == nil {
		_, _, err = conn.WriteMsgUnix(b, oob, nil)
	}
	return err
}

// receive reads a message with n descriptors, which the caller must close, or with none. After an
// error it returns none: it has closed those that it received.
func receive(conn *net.UnixConn, message any, n int) ([]int, error) {
	if err := conn.SetReadDeadline(time.Now().Add(answerWait)); err != nil {
		return nil, err
	}
	b, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*mostFDs))
	nb, fds, flags, err := ring.Receive(conn, b, oob)
	if err != nil {
		return nil, err
	}
	switch err = json.Unmarshal(b[:nb], message); {
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = errors.New("a message is too long")
	case err == nil && len(fds) != n && len(fds) > 0:
		err = fmt.Errorf("a message has %d descriptors", len(fds))
	}
	if err != nil {
		ring.CloseFiles(fds...)
		return nil, err
	}
	return fds, nil
}

// fixed are the seals that the memfd of a link's memory must have. Without them the process that
// made the memfd could remove pages that the other process has mapped.
const fixed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// mapMemory maps the memory of a link that another process made.
func mapMemory(fd int) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&fixed != fixed || st.Size != memoryLen {
		return nil, fmt.Errorf("the memory has %d bytes and seals %#x: want %d bytes, sealed", st.Size, seals, memoryLen)
	}
	return ring.Map(fd, memoryLen)
}

// await blocks until the peer has closed the connection. A message from the peer at this stage
// violates the protocol, and ends the wait, too.
func await(conn *net.UnixConn) {
	if conn.SetReadDeadline(time.Time{}) == nil {
		_, _ = conn.Read(make([]byte, 1)) // only the end of the connection matters
	}
}
