package ucma

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWriteEvent writes events of both kinds that a program may write, others, and more than an identifier may have.
func TestWriteEvent(t *testing.T) {
	n := newNIC(t)
	if _, err := n.m.OpenChannel(); err != nil {
		t.Fatal(err)
	}
	n.do(Command{Op: CreateID, Args: encode(createID{UID: 7, Space: spaceTCP})})
	write := func(kind uint32) error {
		conn := make([]byte, 264) // the room behind the value, which librdmacm sends
		_, err := n.execute(Command{Op: WriteEvent, Args: append(encode(writeEvent{Kind: kind, Status: 5, Param: 1 << 40}), conn...)})
		n.check()
		return err
	}
	for _, kind := range []uint32{userEvent, internalEvent} {
		if err := write(kind); err != nil {
			t.Fatal(err)
		}
		ev, ok := decode[event](n.do(Command{Op: GetEvent}).Data)
		if !ok || ev.Kind != kind || ev.UID != 7 || ev.Status != 5 || binary.NativeEndian.Uint64(ev.Param[:]) != 1<<40 {
			t.Errorf("event %+v", ev)
		}
	}
	for kind := range uint32(30) {
		if err := write(kind); kind != userEvent && kind != internalEvent && !errors.Is(err, unix.EINVAL) {
			t.Errorf("kind %d: %v", kind, err)
		}
	}
	if _, err := n.execute(Command{Op: WriteEvent, Args: encode(writeEvent{ID: 1, Kind: userEvent})}); !errors.Is(err, unix.ENOENT) {
		t.Errorf("no such identifier: %v", err)
	}
	var err error
	for range maxUnread {
		err = write(userEvent)
	}
	if !errors.Is(err, unix.ENOMEM) {
		t.Errorf("more than %d events: %v", maxUnread, err)
	}
}
