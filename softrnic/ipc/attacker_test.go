package ipc_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// attacker speaks the protocol without package ipc, and may break its rules.
type attacker struct {
	conn *net.UnixConn
	page []byte
	ctl  *ring.Control
	wake int
	id   uint64

	welcome proto.Welcome
	// A queue pair and its completion queue, with the objects that they need.
	pd   uint32
	cq   proto.Queue
	cqs  []byte
	qp   proto.Queue
	qps  []byte
	mr   proto.MR
	mems [][]byte
	fds  []int // descriptors that it received and has not closed
}

// attack attaches to a NIC as an attacker.
func (h *house) attack(t testing.TB, nic int) *attacker {
	t.Helper()
	a, err := attach(h.sockets[nic])
	must(t, err)
	t.Cleanup(a.leave)
	return a
}

func attach(socket string) (*attacker, error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	a := &attacker{conn: conn, wake: -1}
	if err := a.call(proto.OpHello, proto.Hello{Version: proto.Version, Name: "attacker\x1b[2J\n"}, &a.welcome); err != nil {
		a.leave()
		return nil, err
	}
	if len(a.fds) != 2 {
		a.leave()
		return nil, fmt.Errorf("%d files", len(a.fds))
	}
	a.wake = a.fds[1]
	if a.page, err = ring.Map(a.fds[0], ring.ControlLen); err != nil {
		a.leave()
		return nil, err
	}
	a.ctl = ring.NewControl(a.page)
	return a, nil
}

// equip makes a queue pair that is connected to itself.
func (a *attacker) equip() error {
	var h proto.Handle
	if err := a.call(proto.OpAllocPD, proto.None{}, &h); err != nil {
		return err
	}
	a.pd = h.H
	var err error
	if err = a.call(proto.OpCreateCQ, proto.CreateCQ{Depth: 16}, &a.cq); err == nil {
		a.cqs, err = a.mapLast(a.cq.Length)
	}
	if err == nil {
		err = a.call(proto.OpCreateQP, proto.CreateQP{PD: a.pd, SendCQ: a.cq.H, RecvCQ: a.cq.H}, &a.qp)
	}
	if err == nil {
		a.qps, err = a.mapLast(a.qp.Length)
	}
	if err == nil {
		err = a.call(proto.OpRegMR, proto.RegMR{PD: a.pd, Length: 4096, Access: verbs.LocalWrite | verbs.RemoteWrite}, &a.mr)
	}
	for _, m := range []proto.ModifyQP{
		{To: proto.ToInit, Init: verbs.ToInit{Access: verbs.RemoteWrite}},
		{To: proto.ToRTR, RTR: verbs.ToRTR{DestQPN: a.qp.QPN(), DestGID: verbs.GIDOf(ips[0]), PathMTU: verbs.MTU1024}},
		{To: proto.ToRTS, RTS: verbs.ToRTS{Timeout: 14, RetryCount: 7}},
	} {
		if m.H = a.qp.H; err == nil {
			err = a.call(proto.OpModifyQP, m, nil)
		}
	}
	return err
}

// mapLast maps the memory of the last descriptor.
func (a *attacker) mapLast(n int) ([]byte, error) {
	b, err := ring.Map(a.fds[len(a.fds)-1], n)
	a.mems = append(a.mems, b)
	return b, err
}

// leave closes the socket without a message.
func (a *attacker) leave() {
	_ = a.conn.Close()
	for _, fd := range a.fds {
		_ = unix.Close(fd)
	}
	for _, b := range append(a.mems, a.page) {
		_ = ring.Unmap(b)
	}
	a.fds, a.mems, a.page = nil, nil, nil
}

// call sends a request and returns the answer; it skips events.
func (a *attacker) call(op proto.Op, args, out any) error {
	b, err := json.Marshal(args)
	if err != nil {
		return err
	}
	a.id++
	msg, err := json.Marshal(proto.Request{ID: a.id, Op: op, Args: b})
	if err != nil {
		return err
	}
	if _, err := a.conn.Write(msg); err != nil {
		return err
	}
	for {
		r, err := a.answer()
		if err != nil {
			return err
		}
		if r.ID != a.id {
			continue
		}
		if err := r.Error.Err(); err != nil || out == nil {
			return err
		}
		return json.Unmarshal(r.Result, out)
	}
}

// answer receives the next message.
func (a *attacker) answer() (r proto.Reply, err error) {
	b, oob := make([]byte, proto.MaxMessage), make([]byte, unix.CmsgSpace(16))
	if err := a.conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return r, err
	}
	n, oobn, _, _, err := a.conn.ReadMsgUnix(b, oob)
	if err == nil && n == 0 {
		err = errors.New("cut off")
	}
	if err != nil {
		return r, err
	}
	msgs, _ := unix.ParseSocketControlMessage(oob[:oobn])
	for i := range msgs {
		fds, _ := unix.ParseUnixRights(&msgs[i])
		a.fds = append(a.fds, fds...)
	}
	return r, json.Unmarshal(b[:n], &r)
}

// ring rings a bell and wakes the daemon.
func (a *attacker) ring(bell uint32) {
	a.ctl.Ring(bell)
	_ = unix.Sendto(a.wake, []byte{1}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
}

// cutOff waits until the daemon has ended the connection.
func (a *attacker) cutOff(t testing.TB) {
	t.Helper()
	for {
		if _, err := a.answer(); err != nil {
			var netErr net.Error
			if errors.As(err, &netErr) && netErr.Timeout() {
				t.Error("the daemon goes on with one who breaks the rules")
			}
			return
		}
	}
}

// victim is an application that keeps the protocol, and that no attack may disturb.
type victim struct {
	t testing.TB
	r *reader
}

func (h *house) victim(t testing.TB) *victim {
	t.Helper()
	r, err := newReader(h.open(t, 0), h.open(t, 1))
	must(t, err)
	return &victim{t, r}
}

// fine checks that the victim can work.
func (v *victim) fine() {
	v.t.Helper()
	for range 3 {
		must(v.t, v.r.read())
	}
}
