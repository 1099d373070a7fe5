package perftestpeer

import (
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// traffic runs the test and returns how many messages this side counts. A server whose NIC does all
// the work counts none.
func (t *perftestRun) traffic() (int, error) {
	switch {
	case t.Test == "write_lat":
		return t.Iters, t.writeLatency()
	case t.Test == "send_lat":
		return t.Iters, t.sendLatency()
	case t.Test == "send_bw" && t.Server:
		return t.Iters, t.sink()
	case t.Server:
		return 0, nil // only the server's NIC works
	}
	return t.Iters, t.stream()
}

func (t *perftestRun) receive() error {
	return t.end.qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{t.end.mr.SGE(t.area, t.Size)}})
}

// work returns the work request for the next message. Its local memory begins at the start of this
// side's buffer, its remote memory at the address that the peer has announced. perftest itself puts
// messages of at most half a page one behind the other into a page of the buffers; for the peer
// this makes no difference.
func (t *perftestRun) work() verbs.SendWR {
	wr := verbs.SendWR{SGL: []verbs.SGE{t.end.mr.SGE(0, t.Size)}, RemoteAddr: t.their.VAddr, RKey: t.their.RKey}
	switch t.Test {
	case "write_bw", "write_lat":
		wr.Op = verbs.OpWrite
	case "read_bw", "read_lat":
		wr.Op = verbs.OpRead
	case "send_bw", "send_lat":
		wr.Op = verbs.OpSend
	case "atomic_bw", "atomic_lat":
		wr.Op, wr.CompareAdd = verbs.OpFetchAdd, 1
		if t.Type == "cas" {
			wr.Op, wr.CompareAdd, wr.Swap = verbs.OpCmpSwap, 0, 1
		}
	}
	return wr
}

// stream sends all messages, with Depth of them in flight.
func (t *perftestRun) stream() error {
	for posted, done := 0, 0; done < t.Iters; {
		for ; posted < t.Iters && posted-done < t.Depth; posted++ {
			if err := t.end.qp.PostSend(t.work()); err != nil {
				return err
			}
		}
		wcs, err := t.end.take()
		if err != nil {
			return err
		}
		done += len(wcs)
	}
	return nil
}

// sink receives all messages of the client.
func (t *perftestRun) sink() error {
	for got := 0; got < t.Iters; {
		wcs, err := t.end.take()
		if err != nil {
			return err
		}
		for i := range wcs {
			if n := int(wcs[i].ByteLen); n != t.Size {
				return fmt.Errorf("%w: a message has %d bytes, not %d; both sides must be given the same size", ErrWrong, n, t.Size)
			}
			if err := t.receive(); err != nil {
				return err
			}
		}
		got += len(wcs)
	}
	return nil
}

// sendLatency sends a message for each received one; the client begins.
func (t *perftestRun) sendLatency() error {
	sent, done, got := 0, 0, 0
	for sent < t.Iters || done < t.Iters || got < t.Iters {
		if mine := got + 1; sent < t.Iters && sent == done && (t.Server && sent < got || !t.Server && sent < mine) {
			if err := t.end.qp.PostSend(t.work()); err != nil {
				return err
			}
			sent++
		}
		wcs, err := t.end.take()
		if err != nil {
			return err
		}
		for i := range wcs {
			if wcs[i].Opcode != verbs.WCRecv {
				done++
				continue
			}
			got++
			if err := t.receive(); err != nil {
				return err
			}
		}
	}
	return nil
}

// The wait for a byte in memory checks it again and again, at first `looks` times without pauses.
// Later it makes pauses, so that other processes get the processor.
const (
	looks = 2000
	pause = 20 * time.Microsecond
)

// writeLatency waits until the last byte of this side's buffer changes, and then changes the last
// byte of the peer's buffer: message n writes n modulo 256 there. The server begins.
func (t *perftestRun) writeLatency() error {
	last := t.Size - 1
	for n := 1; n <= t.Iters; n++ {
		if !t.Server || n > 1 {
			awaited := n
			if t.Server {
				awaited = n - 1
			}
			if err := t.watch(t.area+last, byte(awaited)); err != nil {
				return err
			}
		}
		if err := t.end.mr.WriteAt([]byte{byte(n)}, last); err != nil {
			return err
		}
		if err := t.end.qp.PostSend(t.work()); err != nil {
			return err
		}
		if _, err := t.end.take(); err != nil {
			return err
		}
	}
	if t.Server {
		return t.watch(t.area+last, byte(t.Iters))
	}
	return nil
}

// watch waits until the byte at `off` is v.
func (t *perftestRun) watch(off int, v byte) error {
	end := t.end.rt.Now().Add(t.end.patience)
	var b [1]byte
	for n := 0; ; n++ {
		if err := t.end.mr.ReadAt(b[:], off); err != nil {
			return err
		}
		if b[0] == v {
			return nil
		}
		if n > looks {
			if t.end.rt.Now() > end {
				return fmt.Errorf("the peer's message did not arrive within %v: %w", t.end.patience, verbs.ErrTimeout)
			}
			t.end.rt.Sleep(pause)
		}
	}
}
