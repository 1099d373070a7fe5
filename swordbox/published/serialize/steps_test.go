package serialize_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

const lock = 0x1000

// Section 5 of the paper, byte by byte: a CMP_SWAP that will succeed is sent as a WRITE of the swap
// value on the borrowed connection, and the WRITE's ACK is sent to the client as the answer of an
// atomic. A CMP_SWAP that will fail is sent as a WRITE of the present value (hole 15).
func TestReplacement(t *testing.T) {
	b := newBox(t)
	b.know(lock, 0)
	f := b.one(cas(2, 0, lock, 0, 0x1122334455667788))
	if f.BTH.Opcode != wire.RCWriteOnly || f.BTH.PSN != 101 || f.BTH.DestQP != serverQP(1) || !f.BTH.AckReq || senderOf(f) != 1 {
		t.Errorf("%v", f)
	}
	if f.IPv4.TotalLen != 68 || f.UDP.Length != 48 || f.RETH != (wire.RETH{VA: lock, RKey: 5, Length: 8}) {
		t.Errorf("%+v", f)
	}
	if !bytes.Equal(f.Payload, []byte{0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11}) {
		t.Errorf("payload %x", f.Payload)
	}
	a := b.one(ack(101, wire.AckNoCredits))
	if a.BTH.Opcode != wire.RCAtomicAck || a.AtomicAck != 0 || a.BTH.PSN != 200 || a.BTH.DestQP != clientQP(2) || hostOf(a) != 2 || a.IPv4.TotalLen != 56 {
		t.Errorf("%v", a)
	}
	f = b.one(cas(3, 0, lock, 0, 3))
	if !bytes.Equal(f.Payload, []byte{0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11}) || f.BTH.PSN != 102 {
		t.Errorf("one that fails: %v, payload %x", f, f.Payload)
	}
	if a = b.one(ack(102, wire.AckNoCredits)); a.AtomicAck != 0x1122334455667788 || hostOf(a) != 3 {
		t.Errorf("%v", a)
	}
}

// One acknowledgement of the server becomes one for each client, and one answer for each atomic.
func TestAcksAreTakenApart(t *testing.T) {
	b := newBox(t)
	b.know(lock, 0)
	b.one(write(2, 0, 64))       // PSN 101
	b.one(write(2, 1, 64))       // PSN 102
	b.one(cas(3, 0, lock, 0, 3)) // PSN 103
	b.one(cas(3, 1, lock, 3, 4)) // PSN 104
	b.one(write(4, 0, 64))       // PSN 105
	b.one(write(1, 1, 64))       // PSN 106
	list := b.send(ack(105, wire.AckNoCredits))
	got := map[int][]wire.Frame{}
	for _, f := range list {
		got[hostOf(&f)] = append(got[hostOf(&f)], f)
	}
	if len(got[2]) != 1 || got[2][0].BTH.PSN != 201 || len(got[4]) != 1 || got[4][0].BTH.PSN != 400 || len(got[1]) != 0 {
		t.Errorf("%v", list)
	}
	if a := got[3]; len(a) != 2 || a[0].BTH.PSN != 300 || a[0].AtomicAck != 0 || a[1].BTH.PSN != 301 || a[1].AtomicAck != 3 {
		t.Errorf("%v", a)
	}
	if list = b.send(ack(106, wire.AckNoCredits)); len(list) != 1 || list[0].BTH.PSN != 101 || hostOf(&list[0]) != 1 {
		t.Errorf("%v", list)
	}
}

// A retransmission is sent with the same PSN and value as the first time, even if the cached value
// of the word has changed.
func TestRetransmission(t *testing.T) {
	b := newBox(t)
	b.know(lock, 0)
	first := b.one(cas(2, 0, lock, 0, 2))
	b.one(cas(3, 0, lock, 2, 3))
	again := b.one(cas(2, 0, lock, 0, 2))
	if again.BTH.PSN != first.BTH.PSN || !bytes.Equal(again.Payload, first.Payload) {
		t.Errorf("first %v, again %v", first, again)
	}
	b.send(ack(102, wire.AckNoCredits))
	b.one(cas(2, 0, lock, 0, 2)) // its answer was lost
	if list := b.send(ack(102, wire.AckNoCredits)); len(list) != 1 || list[0].AtomicAck != 0 || list[0].BTH.PSN != 200 {
		t.Errorf("%v", list)
	}
}

// Holes 1 and 2: the server waits for a PSN whose client is dead. It repeats its sequence NAK, all
// other clients retransmit, none makes progress, and the switch reports which client they wait for.
func TestStall(t *testing.T) {
	b := newBox(t)
	b.know(lock, 0)
	b.one(cas(2, 0, lock, 0, 2)) // PSN 101, lost after the switch; and client 2 dies
	for round := range 5 {
		b.send(cas(3, 0, lock, 2, 3))
		b.send(cas(4, 0, lock, 3, 4))
		list := b.send(ack(101, wire.NakPSNSequence))
		naks := map[int]wire.PSN{}
		for _, f := range list {
			if f.AETH.Syndrome != wire.NakPSNSequence {
				t.Errorf("%v", f)
			}
			naks[hostOf(&f)] = f.BTH.PSN
		}
		if len(naks) != 3 || naks[2] != 200 || naks[3] != 300 || naks[4] != 400 {
			t.Fatalf("round %d: %v", round, naks)
		}
		b.now = b.now.Add(time.Second)
	}
	s := b.shared()
	w := s.Waits
	if w == nil || w.PSN != 101 || w.Client != addr(2) || w.ClientPSN != 200 || w.ClientQPN != clientQP(2) || w.Age < 4*time.Second {
		t.Fatalf("%+v", w)
	}
	if len(s.Waiters) != 3 || s.Outstanding != 3 || s.Owner != addr(1) || s.NextPSN != 104 || s.Ring != 1024 {
		t.Errorf("%+v", s)
	}
}

// Hole 41: a request that a later request has overtaken is taken for a retransmission, and is
// dropped because it has no map entry.
func TestOvertaken(t *testing.T) {
	b := newBox(t)
	b.know(lock, 0)
	b.one(write(2, 0, 64))
	if f := b.one(write(2, 2, 64)); f.BTH.PSN != 102 {
		t.Errorf("%v", f)
	}
	if list := b.send(write(2, 1, 64)); len(list) != 0 {
		t.Errorf("%v", list)
	}
}

// Hole 12: the ring wraps before its requests have been answered, and their answers are lost.
func TestRingOverrun(t *testing.T) {
	b := newBox(t)
	b.know(lock, 0)
	for n := range 1025 {
		b.one(write(2, n, 64))
	}
	if s := b.shared(); s.Outstanding != 1024 {
		t.Errorf("%+v", s)
	}
	if list := b.send(ack(101, wire.AckNoCredits)); len(list) != 0 {
		t.Errorf("the first request was answered: %v", list)
	}
}

// Hole 16: a lock that is released by a WRITE stays locked in the cache.
func TestReleaseByWrite(t *testing.T) {
	b := newBox(t)
	b.know(lock, 0)
	b.one(cas(2, 0, lock, 0, 2))
	b.send(ack(101, wire.AckNoCredits))
	b.one(write(2, 1, lock))
	b.send(ack(102, wire.AckNoCredits))
	b.one(cas(3, 0, lock, 0, 3))
	if a := b.one(ack(103, wire.AckNoCredits)); a.AtomicAck != 2 {
		t.Errorf("%v", a)
	}
}

// Hole 20: one client's wrong R_Key ends the connection of all clients, and only that client gets
// the NAK.
func TestFatalNAK(t *testing.T) {
	b := newBox(t)
	b.know(lock, 0)
	b.one(write(2, 0, 64))
	b.one(write(3, 0, 64))
	list := b.send(ack(101, wire.NakRemoteAccess))
	if len(list) != 1 || hostOf(&list[0]) != 2 || list[0].BTH.PSN != 200 || list[0].AETH.Syndrome != wire.NakRemoteAccess {
		t.Errorf("%v", list)
	}
	if s := b.shared(); s.Outstanding != 2 {
		t.Errorf("%+v", s)
	}
}

// Requests of the owner of the borrowed connection are renumbered behind those of other clients,
// and their answers are renumbered back.
func TestOwnerIsRenumbered(t *testing.T) {
	b := newBox(t)
	b.know(lock, 0)
	b.one(write(2, 0, 64))
	send := frame(1, serverHost, serverQP(1), wire.RCSendOnly, 101)
	send.Payload = []byte("mine")
	if f := b.one(send); f.BTH.PSN != 102 || senderOf(f) != 1 {
		t.Errorf("%v", f)
	}
	list := b.send(ack(102, wire.AckNoCredits))
	if len(list) != 2 {
		t.Fatalf("%v", list)
	}
	for _, f := range list {
		if want := map[int]wire.PSN{1: 101, 2: 200}[hostOf(&f)]; f.BTH.PSN != want {
			t.Errorf("%v, want PSN %d", &f, want)
		}
	}
	read := frame(3, serverHost, serverQP(3), wire.RCReadRequest, 300)
	read.RETH = wire.RETH{VA: 64, RKey: 5, Length: 8}
	if f := b.one(read); f.BTH.PSN != 103 {
		t.Errorf("%v", f)
	}
	answer := frame(serverHost, 1, clientQP(1), wire.RCReadResponseOnly, 103)
	answer.Payload = []byte("12345678")
	if f := b.one(answer); f.BTH.PSN != 300 || hostOf(f) != 3 || string(f.Payload) != "12345678" {
		t.Errorf("%v", f)
	}
}

// Hole 4: when the owner's connection ends, the entries on it stay open for ever; new requests use
// the next connection.
func TestOwnerEnds(t *testing.T) {
	b := newBox(t)
	b.know(lock, 0)
	b.one(cas(2, 0, lock, 0, 2))
	b.send(datagram(1, serverHost, &mad.DREQ{LocalID: 1, RemoteID: 0x81, QPN: serverQP(1)}))
	b.send(datagram(serverHost, 1, &mad.DREP{LocalID: 0x81, RemoteID: 1}))
	if s := b.shared(); s.State != "dead" || s.Outstanding != 1 || s.Waits.ClientPSN != 200 {
		t.Errorf("%+v", s)
	}
	if f := b.one(cas(2, 0, lock, 0, 2)); f.BTH.DestQP != serverQP(1) {
		t.Errorf("a retransmission goes elsewhere: %v", f)
	}
	if f := b.one(cas(3, 0, lock, 2, 3)); f.BTH.DestQP == serverQP(1) {
		t.Errorf("a new request goes to the dead connection: %v", f)
	}
}

// The response to a READ acknowledges the requests before it.
func TestReadAcknowledges(t *testing.T) {
	b := newBox(t)
	b.know(lock, 0)
	b.one(write(2, 0, 64)) // PSN 101
	read := frame(3, serverHost, serverQP(3), wire.RCReadRequest, 300)
	read.RETH = wire.RETH{VA: 64, RKey: 5, Length: 8}
	b.one(read) // PSN 102
	answer := frame(serverHost, 1, clientQP(1), wire.RCReadResponseOnly, 102)
	answer.Payload = []byte("12345678")
	got := map[int]wire.Opcode{}
	for _, f := range b.send(answer) {
		got[hostOf(&f)] = f.BTH.Opcode
	}
	if len(got) != 2 || got[2] != wire.RCAck || got[3] != wire.RCReadResponseOnly {
		t.Errorf("%v", got)
	}
}

// A long READ stays on the client's connection, whose PSNs lag by the number of moved requests; so
// do those of its responses.
func TestLongRead(t *testing.T) {
	b := newBox(t)
	b.know(lock, 0)
	b.one(write(2, 0, 64)) // moved
	read := frame(2, serverHost, serverQP(2), wire.RCReadRequest, 201)
	read.RETH = wire.RETH{VA: 64, RKey: 5, Length: 3000}
	if f := b.one(read); f.BTH.PSN != 200 || f.BTH.DestQP != serverQP(2) || senderOf(f) != 2 {
		t.Fatalf("%v", f)
	}
	for i, op := range []wire.Opcode{wire.RCReadResponseFirst, wire.RCReadResponseMiddle, wire.RCReadResponseLast} {
		f := frame(serverHost, 2, clientQP(2), op, wire.PSN(200+i))
		f.Payload = make([]byte, []int{1024, 1024, 952}[i])
		if a := b.one(f); a.BTH.PSN != wire.PSN(201+i) || hostOf(a) != 2 {
			t.Errorf("%v", a)
		}
	}
	if f := b.one(frame(2, serverHost, serverQP(2), wire.RCSendOnly, 204)); f.BTH.PSN != 203 {
		t.Errorf("behind the READ: %v", f)
	}
}

// Hole 39: a masked atomic passes on its client's connection, and the cache keeps the value that
// the word had before.
func TestMaskedAtomicIsUnseen(t *testing.T) {
	b := newBox(t)
	b.know(lock, 0)
	masked := cas(2, 0, lock, 0, 2)
	masked.BTH.Opcode, masked.Masks = wire.RCMaskedCmpSwap, wire.AtomicMasks{Swap: 0xff}
	f := b.one(masked)
	if f.BTH.Opcode != wire.RCMaskedCmpSwap || f.BTH.DestQP != serverQP(2) || f.AtomicETH != masked.AtomicETH || f.Masks != masked.Masks {
		t.Errorf("%v", f)
	}
	b.one(cas(3, 0, lock, 0, 3))
	if a := b.one(ack(101, wire.AckNoCredits)); a.AtomicAck != 0 {
		t.Errorf("%v", a)
	}
}

// Hole 23: client 2's NIC changes its UDP source port. The switch takes its packets for those of
// another connection and counts their PSNs again, behind those that it has sent on. When the former
// port comes back, the switch goes on with the former PSNs.
func TestAnotherPortIsAnotherConnection(t *testing.T) {
	b := newBox(t)
	b.know(lock, 0)
	b.one(cas(2, 0, lock, 0, 2)) // moved: client 2's own connection has used no PSN
	stays := func(n int, port uint16) *wire.Frame {
		f := write(2, n, 64)
		f.UDP.SrcPort, f.BTH.Opcode, f.RETH.Length = port, wire.RCWriteFirst, 2048
		f.Payload = make([]byte, 1024)
		return b.one(f)
	}
	if f := stays(1, 0xc002); f.BTH.PSN != firstPSN(2) {
		t.Errorf("by the first port: %v", f)
	}
	if f := stays(2, 0xd002); f.BTH.PSN != firstPSN(2).Add(2) {
		t.Errorf("by another port: %v", f)
	}
	if f := stays(3, 0xc002); f.BTH.PSN != firstPSN(2).Add(1) {
		t.Errorf("by the first port again: %v", f)
	}
}

// The switch knows a connection by its last ports only.
func TestPortsOfAConnectionAreBounded(t *testing.T) {
	b := newBox(t)
	b.know(lock, 0)
	for n := range 40 {
		f := cas(2, n, lock, 1, 1)
		f.UDP.SrcPort = uint16(0xd000 + n)
		b.one(f)
	}
	for _, m := range b.prog.Report(b.now).Handlers {
		if n := len(m.Flows); n != 4 { // of client 2, the only one with moved requests
			t.Errorf("%d clients, want one for each of the last 4 ports", n)
		}
	}
}
