package redn

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Walk searches a list for one client by an unrolled loop, as the program of the paper does: each
// node has its own copy of the requests. A ListServer, in contrast, walks lists of any length.
type Walk struct {
	// Worker is a managed queue that is connected to itself. Answers is a managed queue that is
	// connected to the client.
	Worker, Answers *Queue
	// Copies is a managed queue that is connected to itself. Its requests end a walk at the node with
	// the key (a break). With a break, the queues serve one client request only, because the worker
	// stops behind that node. If Copies is nil, a walk visits all nodes, and the queues serve any
	// number of requests.
	Copies *Queue
	// Received, Lists and Client are as in ListServer.
	Received *Counter
	Lists    Mem
	Client   Mem
	// Pool is where the requests of the walk get their memory from; it must allow atomics.
	Pool *Pool

	scratch Mem // bytes that the requests may overwrite
	keys    Mem // walkCopies copies of the client's key
}

// directNodes is the largest number of nodes for which a receive can scatter the key directly into
// the CAS of all nodes. The receive needs a piece for each node, one for the remaining copies of
// the key and one for the address.
const directNodes = sendring.MaxSGE - 2

// Request appends the requests of a walk that visits n nodes, and returns the scatter list of the
// receive for the client's request. The client gets a WRITE with immediate data Hit for each node
// with the key; with a break, only for the first such node. Then it gets a WRITE of no bytes with
// Miss.
//
// For each node the NIC executes 1 copy, 1 atomic, 3 WAITs or ENABLEs, as in Table 2 of the paper,
// and the conditional request. Without a break, the requests of the next walk must be in the ring
// when a walk ends; see Lookup.Request.
func (k *Walk) Request(n int) ([]verbs.SGE, error) {
	if n < 1 {
		return nil, fmt.Errorf("redn: %d nodes; at least 1", n)
	}
	if k.keys.Len == 0 {
		k.scratch, _ = k.Pool.Reserve(walkCopies * keyLen)
		k.keys, _ = k.Pool.Reserve(walkCopies * keyLen)
	}
	w := k.Worker
	k.Received.Count++
	w.Wait(k.Received)
	begin := w.Enable(w)
	// In front of the nodes, READs (or, for few nodes, the receive itself) copy the client's key into
	// the CAS of all nodes. The CAS are appended later, but their indexes are already known.
	spread := 0
	if n > directNodes {
		spread = (n + walkCopies - 1) / walkCopies
	}
	first := w.next + uint32(spread*sendring.MaxBlocks)
	if spread > 0 {
		first++ // the block of the WAIT behind the READs
	}
	for i := range spread {
		var dst []Mem
		for j := i * walkCopies; j < min(n, (i+1)*walkCopies); j++ {
			dst = append(dst, k.cas(first, j).key())
		}
		k.spread(dst, i == spread-1)
	}
	if spread > 0 {
		w.Wait(w.Done)
	}
	answered := k.nodes(begin, first, n)
	if k.Copies != nil && int(w.next) > w.blocks() {
		return nil, fmt.Errorf("redn: a walk with a break serves one request, and its %d blocks do not fit into a ring of %d", w.next, w.blocks())
	}
	k.Answers.Append(sendring.Entry{Op: sendring.WriteImm, Flags: sendring.Signalled, Imm: Miss, RemoteAddr: k.Client.Addr, RKey: k.Client.RKey})
	w.Enable(k.Answers)
	answered.entry.Count = w.next
	if k.Copies == nil {
		answered.entry.Count += lookupHead
	}
	return k.receive(first, n), nil
}

// Start appends to master the request that starts the worker. It must be called before the first
// Take.
func (k *Walk) Start(master *Queue) { master.enable(k.Worker, k.Worker.first+lookupHead) }

// spread appends a READ that copies the client's key to dst. If the READ is shorter than MaxBlocks
// blocks, a NOP fills the rest, so that the blocks behind it have known indexes.
func (k *Walk) spread(dst []Mem, signal bool) {
	flags := sendring.Flags(0)
	if signal {
		flags = sendring.Signalled
	}
	before := k.Worker.next
	k.Worker.Read(flags, k.keys, dst...)
	if left := before + sendring.MaxBlocks - k.Worker.next; left > 0 {
		k.Worker.Append(sendring.Entry{Op: sendring.NOP, Segments: uint8(left * sendring.BlockSize / segmentLen)}).pad = true
	}
}

// Numbers of blocks of the requests of a node: a READ of two blocks with 3 SGEs, a CAS, and 3 WAIT
// or ENABLE.
const (
	walkReadBlocks = 2
	walkBlocks     = walkReadBlocks + 4
	segmentLen     = 16
)

// cas and read return the CAS and the READ of node j, which need not be appended yet. first is the
// index of node 0's first block.
func (k *Walk) cas(first uint32, j int) *Request {
	return &Request{queue: k.Worker, index: first + uint32(j*walkBlocks+walkReadBlocks)}
}

func (k *Walk) read(first uint32, j int) *Request {
	return &Request{queue: k.Worker, index: first + uint32(j*walkBlocks)}
}

// receive returns the scatter list of the receive for the client's request, as Request returns it.
func (k *Walk) receive(first uint32, n int) (all []verbs.SGE) {
	left := k.keys
	if n <= directNodes {
		for j := range n {
			all = append(all, k.cas(first, j).key().sge())
		}
		left = left.At(0, (walkCopies-n)*keyLen)
	}
	return append(all, left.sge(), k.read(first, 0).Remote().sge())
}

// nodes appends to Worker the requests that visit n nodes of the list. begin is an ENABLE;
// nodes sets its limit so that it enables the requests of the first node. The requests of each node
// end with an ENABLE for the requests of the next node. nodes returns the ENABLE of the last node.
// The caller sets its limit when it has appended the requests that follow.
func (k *Walk) nodes(begin *Request, first uint32, n int) (last *Request) {
	w, last := k.Worker, begin
	var reply *Request
	if k.Copies != nil {
		reply = k.Answers.Append(answer(k.Client, k.Lists.LKey, Hit))
	}
	for j := range n {
		next := k.read(first, j+1).Remote()
		if j == n-1 {
			next = k.scratch.At(0, wordLen)
		}
		if k.Copies != nil {
			copied := k.Copies.Append(k.end(j, first))
			w.Read(0, Mem{RKey: k.Lists.RKey}, reply.dataAddr(), next, copied.head())
			w.walkCAS(copied, writeSegments, sendring.Write, k.scratch)
			w.Enable(k.Copies).entry.Flags = sendring.Fence
			w.Wait(k.Copies.Done)
		} else {
			reply = k.Answers.Append(answer(k.Client, k.Lists.LKey, Hit))
			w.Read(0, Mem{RKey: k.Lists.RKey}, reply.dataAddr(), next, reply.head())
			w.walkCAS(reply, writeSegments, sendring.WriteImm, k.scratch)
			w.Wait(w.Done)
			w.Enable(k.Answers)
		}
		last.entry.Count = w.next + 1
		last = w.Enable(w)
	}
	if k.Copies != nil {
		k.miss(reply)
	}
	return last
}

// end returns the request that ends a walk at node j. It writes two requests over the READ of the
// next node: an ENABLE of the two answers (Hit, then Miss), and a WAIT for completions that never
// come.
func (k *Walk) end(j int, first uint32) sendring.Entry {
	e := sendring.Entry{Op: sendring.NOP, Flags: sendring.Signalled, Segments: writeSegments, NSGE: 1}
	m, b := k.Pool.Reserve(walkReadBlocks * sendring.BlockSize)
	both := sendring.Entry{Op: sendring.Enable, Count: k.Answers.next + 1, Object: uint32(k.Answers.QPN), QPN: k.Worker.QPN}
	copy(b, both.AppendTo(nil))
	copy(b[sendring.BlockSize:], k.Worker.never())
	e.RemoteAddr, e.RKey = k.read(first, j+1).bytes(0, sendring.BlockSize).Addr, k.Worker.Ring.RKey
	e.SGL[0] = m.sge()
	return e
}

// miss appends requests for a walk with a break in which no node had the key. The first request is
// a NOP. If the last node has the key, its break (see end) overwrites this NOP, so that the
// requests behind it are not executed. The second request, a WRITE, turns the answer Hit into a
// NOP, so that the client gets only Miss.
func (k *Walk) miss(reply *Request) {
	w := k.Worker
	w.Append(sendring.Entry{Op: sendring.NOP, Segments: walkReadBlocks * sendring.BlockSize / segmentLen})
	nop := sendring.Entry{Op: sendring.NOP, Segments: writeSegments}
	w.Write(sendring.Signalled, reply.head(), k.Pool.Put(nop.AppendTo(nil)[:keyLen]))
	w.Wait(w.Done)
}
