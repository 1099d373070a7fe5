package perftestpeer

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Perftest is a run of one of the tests of perftest 4.5 over RC.
type Perftest struct {
	// Test is the name of the program without "ib_": write_bw and so on.
	Test   string `json:"test"`
	Server bool   `json:"server"`
	// Size is the length of a message in bytes, -s; 0 means 65536 for bandwidth, 2 for latency. For
	// atomics it is always 8.
	Size int `json:"size"`
	// Iters is the number of messages, -n; 0 means perftest's default: 5000 for write_bw, else 1000.
	Iters int `json:"iters"`
	// MTU is this side's path MTU in bytes, -m; 0 means the largest that the link allows. The
	// smaller one of both sides is used.
	MTU int `json:"mtu"`
	// Depth is the number of messages in flight, -t; 0 means 128 for bandwidth, 16 for atomics. For
	// latency it is always 1.
	Depth int `json:"depth"`
	// Outs is the number of READs and atomics in flight, -o; 0 means 16.
	Outs int `json:"outs"`
	// Type is faa or cas, for atomics; "" means faa.
	Type string `json:"type"`
	// Source is the index of the address that this side announces; −1 means the first IPv4 address.
	Source int `json:"source"`
	// Timeout is the code of this side's ACK timeout, 4.096 µs · 2^Timeout (perftest's option -u);
	// 0 means 16 (268 ms).
	Timeout uint8 `json:"timeout,omitempty"`
	// Patience is how long to wait for one completion; 0 means 30 s.
	Patience time.Duration `json:"patienceNs"`
}

// script describes the exchange of a test over TCP. It says how many times both sides exchange
// records before the traffic and after it, whether a report of five numbers follows the first
// record after the traffic, and whether "done" is sent at the end.
type script struct {
	before, after int
	report, done  bool
}

// scripts has the exchanges of perftest 4.5 with one queue pair. Other versions exchange records
// other numbers of times.
var scripts = map[string]script{
	"write_bw":   {before: 3, after: 2, report: true, done: true},
	"read_bw":    {before: 3, after: 2, report: true, done: true},
	"atomic_bw":  {before: 3, after: 2, report: true, done: true},
	"send_bw":    {before: 4, after: 1, done: true},
	"send_lat":   {before: 4, after: 1, done: true},
	"read_lat":   {before: 4, after: 1, done: true},
	"atomic_lat": {before: 4, after: 1, done: true},
	"write_lat":  {before: 4},
}

func perftestTests() []string { return slices.Sorted(maps.Keys(scripts)) }

// Lengths and numbers in the exchange.
const (
	perftestVersion = "6.06"
	versionLen      = 16
	pageSize        = 4096 // perftest's "cycle buffer"
	cacheLine       = 64
	reportNumbers   = 5
	maxOuts         = 128
	maxTimeout      = 31
)

// Validate sets defaults, and returns an error for the first wrong field.
func (p *Perftest) Validate() error {
	_, ok := scripts[p.Test]
	op, kind, _ := strings.Cut(p.Test, "_")
	p.Outs = cmp.Or(p.Outs, 16)
	iters, depth, size := 1000, 128, 65536
	if p.Test == "write_bw" {
		iters = 5000
	}
	if op == "atomic" {
		depth = 16
		p.Size = 8
	}
	if kind == "lat" {
		depth, size = 1, 2
		p.Depth = 1
	}
	p.Iters = cmp.Or(p.Iters, iters)
	p.Depth = cmp.Or(p.Depth, depth)
	p.Size = cmp.Or(p.Size, size)
	p.Type = cmp.Or(p.Type, "faa")
	switch {
	case !ok:
		return fmt.Errorf("perftest test %q: want one of %s", p.Test, strings.Join(perftestTests(), " "))
	case p.Size < 1 || p.Size > MaxSize:
		return fmt.Errorf("size %d: want 1 to %d bytes", p.Size, MaxSize)
	case p.Iters < 1 || p.Iters > maxIters:
		return fmt.Errorf("iters %d: want 1 to %d", p.Iters, maxIters)
	case p.Depth < 1 || p.Depth > maxDepth:
		return fmt.Errorf("depth %d: want 1 to %d", p.Depth, maxDepth)
	case p.Outs < 1 || p.Outs > maxOuts:
		return fmt.Errorf("outs %d: want 1 to %d", p.Outs, maxOuts)
	case p.Type != "faa" && p.Type != "cas":
		return fmt.Errorf("type %q: want faa or cas", p.Type)
	case p.Timeout > maxTimeout:
		return fmt.Errorf("timeout %d: want a code from 1 to %d", p.Timeout, maxTimeout)
	case p.MTU != 0:
		return checkMTU(p.MTU)
	}
	return nil
}

// Run makes the exchange over conn and runs the test. The caller sets deadlines of conn for the
// exchange, and closes it.
func (p Perftest) Run(ctx verbs.Context, conn io.ReadWriter) (Result, error) {
	var r Result
	if err := p.Validate(); err != nil {
		return r, err
	}
	p.MTU = cmp.Or(p.MTU, int(ctx.Device().ActiveMTU))
	t := &perftestRun{Perftest: p, conn: conn, area: areaOf(p.Size), recvs: min(2*p.Depth, maxDepth)}
	if t.receives() {
		t.recvs = max(t.recvs, 64)
	}
	// The memory has this side's buffer, and behind it the buffer that the peer's messages and
	// one-sided operations use.
	e, err := openEnd(ctx, verbs.RC, 2*t.area, p.Depth, t.recvs, p.Patience)
	if err != nil {
		return r, err
	}
	t.end = e
	err = t.both(ctx, &r)
	return r, errors.Join(err, e.close())
}

// areaOf returns the length of a buffer for messages of size bytes. perftest puts messages of at
// most half a page one behind the other into a page of the buffer, and longer ones at its start.
func areaOf(size int) int { return 2 * ((size + pageSize - 1) / pageSize * pageSize) }

// perftestRun is the state of one run of a test of perftest.
type perftestRun struct {
	Perftest
	end   *end
	conn  io.ReadWriter
	area  int    // length of one of the two buffers in bytes; see areaOf
	recvs int    // receives that this side keeps posted, if it receives
	our   record // of this side
	their record // of the peer
}

// receives reports whether this side posts receives, because the peer sends to it.
func (t *perftestRun) receives() bool {
	return t.Test == "send_lat" || t.Test == "send_bw" && t.Server
}

func (t *perftestRun) both(ctx verbs.Context, r *Result) error {
	if err := t.greet(); err != nil {
		return err
	}
	source, err := announced(ctx, t.Source)
	if err != nil {
		return err
	}
	t.our = record{
		Outs: uint16(t.Outs), QPN: t.end.qp.QPN(), PSN: wire.PSN(t.end.rt.Rand().Uint32() & 0xffffff), RKey: t.end.mr.RKey(),
		VAddr: t.end.mr.Addr() + uint64(t.area), GID: ctx.Device().GIDs[source],
	}
	if err := t.swap(); err != nil {
		return err
	}
	r.QPN, r.PeerQPN = uint32(t.our.QPN), uint32(t.their.QPN)
	if err := noAddress(t.their.GID); err != nil {
		return err
	}
	err = t.end.connect(link{
		to: verbs.AHAttr{DestGID: t.their.GID, SourceGID: source}, qpn: t.their.QPN, theirPSN: t.their.PSN, ourPSN: t.our.PSN,
		mtu: verbs.MTU(t.MTU), outs: min(t.Outs, int(t.their.Outs)), theirOuts: min(int(t.their.Outs), maxOuts), timeout: t.Timeout,
	})
	if err != nil {
		return err
	}
	if t.receives() {
		for range t.recvs {
			if err := t.receive(); err != nil {
				return err
			}
		}
	}
	s := scripts[t.Test]
	for range s.before - 1 {
		if err := t.swap(); err != nil {
			return err
		}
	}
	begin := t.end.rt.Now()
	n, err := t.traffic()
	if err != nil {
		return err
	}
	r.Elapsed = t.end.rt.Now().Sub(begin)
	r.Iters, r.Bytes = n, uint64(n)*uint64(t.Size)
	r.rates()
	if strings.HasSuffix(t.Test, "_lat") && t.Test[:4] != "read" && t.Test[:6] != "atomic" {
		r.Usec /= 2
	}
	return t.part(s, r)
}

// swapBytes is the basic step of the exchange. It sends the bytes in `say` to the peer, and
// receives len(hear) bytes into `hear`. The client sends first, and the server receives first.
func (t *perftestRun) swapBytes(say, hear []byte) error {
	write := func() error { _, err := t.conn.Write(say); return err }
	read := func() error { _, err := io.ReadFull(t.conn, hear); return err }
	first, second := write, read
	if t.Server {
		first, second = read, write
	}
	if err := first(); err != nil {
		return fmt.Errorf("exchange: %w", err)
	}
	if err := second(); err != nil {
		return fmt.Errorf("exchange: %w", err)
	}
	return nil
}

// swap exchanges records. All exchanges but the first are only barriers.
func (t *perftestRun) swap() error {
	var b [recordLen]byte
	if err := t.swapBytes(t.our.AppendTo(nil), b[:]); err != nil {
		return err
	}
	return t.their.Parse(b[:])
}

// greet exchanges the values that perftest compares first: versions, sizes of pages and cache
// lines, and path MTUs.
func (t *perftestRun) greet() error {
	version := make([]byte, versionLen)
	copy(version, perftestVersion)
	heard := make([]byte, versionLen)
	if err := t.swapBytes(version, heard); err != nil {
		return err
	}
	if v := bytes.TrimRight(heard, "\x00"); string(v) != perftestVersion {
		return fmt.Errorf("%w: the peer's version is %q, and this is %s (perftest 4.5)", ErrFormat, v, perftestVersion)
	}
	for _, v := range []uint32{pageSize, cacheLine} {
		if err := t.swapBytes(binary.BigEndian.AppendUint32(nil, v), heard[:4]); err != nil {
			return err
		}
	}
	code := byte('1')
	for n := int(verbs.MTU256); n < t.MTU; n *= 2 {
		code++
	}
	if err := t.swapBytes([]byte{code, 0}, heard[:2]); err != nil {
		return err
	}
	if heard[0] < '1' || heard[0] > '5' || heard[1] != 0 {
		return fmt.Errorf("%w: path MTU %q", ErrFormat, heard[:2])
	}
	t.MTU = min(t.MTU, int(verbs.MTU256)<<(heard[0]-'1'))
	return nil
}

// part executes the part of the exchange over TCP that follows the traffic.
func (t *perftestRun) part(s script, r *Result) error {
	for i := range s.after {
		if err := t.swap(); err != nil {
			return err
		}
		if i == 0 && s.report {
			numbers := [reportNumbers]uint64{
				uint64(t.Size), uint64(t.Iters), math.Float64bits(r.MiBps), math.Float64bits(r.MiBps), math.Float64bits(r.Mpps),
			}
			var heard [8]byte
			for _, v := range numbers {
				if err := t.swapBytes(binary.BigEndian.AppendUint64(nil, v), heard[:]); err != nil {
					return err
				}
			}
		}
	}
	if !s.done {
		t.end.rt.Sleep(farewell)
		return nil
	}
	// For this last step the roles change: the server sends "done" first.
	t.Server = !t.Server
	heard := make([]byte, len(doneText))
	if err := t.swapBytes([]byte(doneText), heard); err != nil {
		return err
	}
	if string(heard) != doneText {
		return fmt.Errorf("%w: want %q at the end, got %q", ErrFormat, doneText, heard)
	}
	return nil
}
