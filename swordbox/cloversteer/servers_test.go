package cloversteer_test

import (
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// second is another memory server, to which client 1 has a connection as well.
const second = 3

// super returns the WRITE of a superblock of server i of store 77.
func super(i int) []byte {
	s := layout.Superblock{Format: layout.Hardened, Server: i, Generation: uint64(9 + i), Space: space, Store: 77}
	data := make([]byte, layout.SuperblockLen)
	s.Put(data)
	return data
}

// The chain of a key goes from one server to the other and back: the switch follows it, and steers
// requests on the same server only (hole 27).
func TestTailOnAnotherServer(t *testing.T) {
	b := newBox(t, rules.Rule{}, second)
	b.send(datagram(1, second, &mad.REQ{
		LocalID: 0x41, QPN: 0x31, PSN: 7, MTU: 3, Primary: mad.Path{LocalGID: addr(1).As16(), RemoteGID: addr(second).As16()},
	}))
	b.send(datagram(second, 1, &mad.REP{LocalID: 0xc1, RemoteID: 0x41, QPN: 0x41, PSN: 5000}))
	psn := wire.PSN(5000)
	to := func(op wire.Opcode) *wire.Frame {
		f := frame(1, second, 0x41, op, psn)
		psn = psn.Next()
		return f
	}
	write := func(va uint64, data []byte) {
		f := to(wire.RCWriteOnly)
		f.RETH, f.Payload = wire.RETH{VA: va, RKey: rkey, Length: uint32(len(data))}, data
		b.pass(f)
	}
	b.pass(b.write(4, base, super(0)))
	write(base, super(1))
	b.node(1, 1, 1, 7)
	b.append(1, 1, 2, 7)
	const far = layout.Handle(17) // the first node of the second server
	data := make([]byte, 128)
	layout.Hardened.PutNode(data, layout.Header(1), 7, nil)
	write(va(1), data)
	f := b.cas(1, 2, 1, far, 1)
	b.pass(f)
	b.pass(answer(f, layout.Header(1)))
	b.pass(b.read(2, 1)) // the tail is on the other server, so this is not steered
	b.node(1, 3, 1, 7)
	g := to(wire.RCCmpSwap)
	g.AtomicETH = wire.AtomicETH{
		VA: va(1), RKey: rkey, Compare: uint64(layout.Header(1)), SwapOrAdd: uint64(layout.Superseded(1, layout.Location{Handle: 3, Version: 1})),
	}
	b.pass(g)
	a := frame(second, 1, 0x31, wire.RCAtomicAck, g.BTH.PSN)
	a.AtomicAck = uint64(layout.Header(1))
	b.pass(a)
	f = b.read(2, 1)
	wantVA(t, b.one(f), f, va(3))
	if s := b.m.Stats(); s.Elsewhere != 1 || s.Linked != 3 || s.Foreign != 0 {
		t.Errorf("%+v", s)
	}
}

// The memory of a server is formatted again, and the switch does not see the new superblock itself:
// it is written on a connection that the switch does not know, or the server has restarted and a
// client finds none. A handle names another node from then on, perhaps of another key in the same
// version: an append of it must not be steered to the tail of the former key.
func TestHandlesOfMemoryFormattedAgain(t *testing.T) {
	const far = layout.Handle(17) // the first one of the second server
	for name, format := range map[string]func(b *box){
		"unknown connection": func(b *box) {
			f := frame(4, second, 0x77, wire.RCWriteOnly, 1)
			f.RETH, f.Payload = wire.RETH{VA: base + 1<<20, RKey: rkey, Length: layout.SuperblockLen}, super(1)
			b.pass(f)
		},
		"bulk WRITE": func(b *box) {
			f := frame(4, second, 0x77, wire.RCWriteFirst, 1)
			f.RETH, f.Payload = wire.RETH{VA: base, RKey: rkey, Length: 4096}, make([]byte, 1024)
			b.pass(f)
		},
		"no superblock": func(b *box) {
			f := frame(1, second, 0x41, wire.RCReadRequest, 5002)
			f.RETH = wire.RETH{VA: base, RKey: rkey, Length: layout.SuperblockLen}
			b.pass(f)
			a := frame(second, 1, 0x31, wire.RCReadResponseOnly, 5002)
			a.Payload = make([]byte, layout.SuperblockLen)
			b.pass(a)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, rules.Rule{}, second)
			b.send(datagram(1, second, &mad.REQ{
				LocalID: 0x41, QPN: 0x31, PSN: 7, MTU: 3, Primary: mad.Path{LocalGID: addr(1).As16(), RemoteGID: addr(second).As16()},
			}))
			b.send(datagram(second, 1, &mad.REP{LocalID: 0xc1, RemoteID: 0x41, QPN: 0x41, PSN: 5000}))
			write := func(psn wire.PSN, va uint64, data []byte) {
				f := frame(1, second, 0x41, wire.RCWriteOnly, psn)
				f.RETH, f.Payload = wire.RETH{VA: va, RKey: rkey, Length: uint32(len(data))}, data
				b.pass(f)
			}
			b.pass(b.write(4, base, super(0)))
			write(5000, base, super(1))
			b.node(1, 1, 1, 7)
			b.append(1, 1, 2, 7)
			data := make([]byte, 128)
			layout.Hardened.PutNode(data, layout.Header(1), 7, nil)
			write(5001, va(1), data) // handle far, of key 7
			b.node(2, 5, 1, 8)
			format(b)
			b.pass(b.cas(2, 5, 1, far, 1)) // far is now the node of key 8
		})
	}
}

// In a shared space the memory of a node becomes that of nodes of another class. The switch forgets
// what was there: an address that was a node's header may be in the middle of a value.
func TestNodesOfAnotherClass(t *testing.T) {
	shared := layout.Space{Servers: 1, Shortcuts: 4}
	shared.ShareIn(2*layout.UsualSegment, layout.Classes-1)
	s := layout.Superblock{Format: layout.Hardened, Generation: 9, Space: shared}
	at := func(c layout.Class, i int) (h layout.Handle, va uint64) {
		h = shared.First(0, c) + layout.Handle(i)
		p, _ := shared.Place(h)
		return h, base + uint64(p.Offset)
	}
	for _, write := range []struct {
		c     layout.Class
		i     int
		steer bool // the switch knows the tail, which is the second small node
	}{{2, 0, false}, {2, 1, true}, {0, 1, false}, {0, 2, true}, {1, 0, false}, {8, 0, false}, {8, 1, true}} {
		b := newBox(t, rules.Rule{})
		data := make([]byte, layout.SuperblockLen)
		s.Put(data)
		b.pass(b.write(4, base, data))
		node := func(c layout.Class, i int, key uint64) {
			_, va := at(c, i)
			data := make([]byte, min(c.Size(), 1024))
			layout.Hardened.PutNode(data, layout.Header(1), key, nil)
			f := b.write(1, va, data)
			if f.RETH.Length = uint32(c.Size()); len(data) < c.Size() {
				f.BTH.Opcode = wire.RCWriteFirst
			}
			b.one(f)
		}
		link := func(i, to, n int) *wire.Frame {
			h, _ := at(0, n)
			f := b.cas(i, 1, 1, h, 1)
			_, f.AtomicETH.VA = at(0, to)
			return f
		}
		node(0, 0, 7)
		node(0, 1, 7)
		f := link(1, 0, 1)
		b.pass(f)
		b.pass(answer(f, layout.Header(1)))
		node(0, 200, 7)
		node(write.c, write.i, 8)
		_, want := at(0, 1)
		if f = link(2, 0, 200); !write.steer {
			want = f.AtomicETH.VA
		}
		wantVA(t, b.one(f), f, want)
		if t.Failed() {
			t.Fatalf("after a node %d of %v", write.i, write.c)
		}
	}
}

// Nodes of several packets (hole 37): the key is in the first one. Appends to them are steered, and
// READs, if the newest node has the version that the client expects; also when the client reads a
// part again.
func TestLongNodes(t *testing.T) {
	b := newBox(t, rules.Rule{})
	long := layout.Space{Servers: 1, Entries: layout.Counts{0: 16, 4: 4}, Shortcuts: 4}
	s := layout.Superblock{Format: layout.Hardened, Generation: 9, Space: long}
	data := make([]byte, layout.SuperblockLen)
	s.Put(data)
	b.pass(b.write(4, base, data))
	at := func(h layout.Handle) uint64 { return base + 256 + 16*128 + uint64(h-17)*2048 }
	node := func(i int, h layout.Handle, v layout.Version) {
		data := make([]byte, 2048)
		layout.Hardened.PutNode(data, layout.Header(v), 7, nil)
		first, last := b.request(i, wire.RCWriteFirst), b.request(i, wire.RCWriteLast)
		first.RETH, first.Payload, last.Payload = wire.RETH{VA: at(h), RKey: rkey, Length: 2048}, data[:1024], data[1024:]
		b.one(first)
		b.one(last)
	}
	link := func(i int, to, n layout.Handle, v layout.Version) *wire.Frame {
		f := b.cas(i, 1, 1, n, v)
		f.AtomicETH.VA = at(to)
		return f
	}
	node(1, 17, 1)
	node(1, 18, 1)
	f := link(1, 17, 18, 1)
	b.pass(f)
	b.pass(answer(f, layout.Header(1)))
	read := func() *wire.Frame {
		r := b.request(3, wire.RCReadRequest)
		b.sent[3]++
		r.RETH = wire.RETH{VA: at(17), RKey: rkey, Length: 2048}
		return r
	}
	r := read()
	wantVA(t, b.one(r), r, at(18))
	node(2, 19, 1)
	f = link(2, 17, 19, 1)
	wantVA(t, b.one(f), f, at(18))
	held := read()
	if list := b.send(held); len(list) != 0 {
		t.Fatalf("a READ during an append left as %v", list)
	}
	list := b.send(answer(f, layout.Header(1)))
	if len(list) != 2 {
		t.Fatalf("the READ that waited: %v", list)
	}
	wantVA(t, &list[slices.IndexFunc(list, func(f wire.Frame) bool { return f.BTH.Opcode == wire.RCReadRequest })], held, at(19))
	rest := *held
	rest.BTH.PSN, rest.RETH.VA, rest.RETH.Length = held.BTH.PSN.Next(), at(17)+1024, 1024
	wantVA(t, b.one(&rest), &rest, at(19)+1024)
	first := *r
	wantVA(t, b.one(&first), &first, at(18))
	node(1, 20, 2)
	f = link(1, 17, 20, 2)
	wantVA(t, b.one(f), f, at(19))
	b.send(answer(f, layout.Header(1)))
	b.pass(read())
}

// A rule with keys=hot:1 steers requests only for the hottest key. The listing shows this key with
// its tail.
func TestHottestKey(t *testing.T) {
	b := ready(t, rules.Rule{Hot: 1})
	b.node(2, 5, 1, 8)
	b.append(2, 5, 6, 8)
	b.pass(b.read(3, 5))
	for range 40 {
		b.one(b.read(3, 1))
	}
	f := b.read(3, 1)
	wantVA(t, b.one(f), f, va(2))
	b.pass(b.read(3, 5))
	keys := b.m.Keys(b.now)
	if len(keys) != 2 || keys[0].Key != 7 || keys[0].Reads != 41 || keys[0].Steered == 0 || keys[0].Tail == nil ||
		keys[0].Tail.VA != va(2) || keys[0].Tail.Server != addr(serverHost) || keys[1].Steered != 0 {
		t.Errorf("%+v", keys)
	}
}
