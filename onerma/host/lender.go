package host

import (
	"bufio"
	"cmp"
	"context"
	cryptorand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// LenderPort is the TCP port of a Lender.
const LenderPort = 4792

// Bounds of a Lender. maxLine is the greatest length of a request or an answer in bytes, maxAck that of a line that
// acknowledges a notice. askWithin
// is how long a peer may take to send its request.
const (
	MaxLoan   = 256 << 20 // bytes of a loan
	maxLent   = 1 << 30   // bytes of all loans
	maxLoans  = 64        // connections
	maxLine   = 4096
	maxAck    = 64
	askWithin = 5 * time.Second
	// knowWithin is how long a rotation waits for a peer to say that it knows the next keys.
	knowWithin = 2 * time.Second
)

// loanRequest is the first line of a connection, as JSON.
type loanRequest struct {
	PID   nic.PID `json:"pid"`
	Bytes int     `json:"bytes"`
}

// loanAnswer is the answer, on one line as JSON. Further lines are notices of new keys: if Coming is true,
// the keys of Grant will replace the former ones, and the peer answers by a line with Number in decimal;
// then they have replaced them. Number counts the rotations of the loan from 1 on.
type loanAnswer struct {
	Grant  *Grant `json:"grant,omitempty"`
	Coming bool   `json:"coming,omitempty"`
	Number uint64 `json:"number,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Lender lends memory of a host to peers. A connection is a loan: the peer names its process, and
// gets the keys for new memory, whose bytes are 0. The loan ends with the connection.
type Lender struct {
	proc     *Process
	listener net.Listener
	wg       sync.WaitGroup

	rotating sync.Mutex // one rotation at a time
	done     chan struct{}

	mu    sync.Mutex            // guards the fields below
	conns map[net.Conn]*lending // nil before the peer has a loan
	lent  int                   // bytes
	ended bool
}

// lending is a loan as its lender sees it.
type lending struct {
	conn   net.Conn
	region *Region
	to     netip.Addr
	pid    nic.PID
	number uint64        // of the last rotation; only rotate uses it
	knows  chan uint64   // number of the last rotation of which the peer has said that it knows the keys
	over   chan struct{} // closed when the loan has ended
}

// Lend makes a Lender that lends memory of the process to the peers that connect to l. The listener
// and the process belong to the Lender, which Close ends.
func (p *Process) Lend(l net.Listener, log *slog.Logger) *Lender {
	s := &Lender{proc: p, listener: l, done: make(chan struct{}), conns: make(map[net.Conn]*lending)}
	s.wg.Go(func() { AcceptAll(l.Accept, log, "a loan", s.begin) })
	return s
}

// begin serves a connection by a goroutine of its own. If there are too many connections, or the
// Lender has ended, it ends the connection.
func (s *Lender) begin(c net.Conn) {
	s.mu.Lock()
	full := len(s.conns) >= maxLoans
	if ended := s.ended; ended || full {
		s.mu.Unlock()
		if full && !ended {
			_ = reply(c, loanAnswer{Error: fmt.Sprintf("%d loans are open: end one", maxLoans)})
		}
		_ = c.Close()
		return
	}
	s.conns[c] = nil
	s.mu.Unlock()
	s.wg.Go(func() { s.serve(c) })
}

// serve serves one connection: it reads the request, and lends memory until the loan ends.
func (s *Lender) serve(c net.Conn) {
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		_ = c.Close() // Close may have closed it already
	}()
	_ = c.SetDeadline(time.Now().Add(askWithin)) // if it fails, so does the Read that follows
	in := bufio.NewReaderSize(io.LimitReader(c, maxLine), maxLine)
	var ask loanRequest
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &ask)
	}
	if err != nil {
		_ = reply(c, loanAnswer{Error: "the request is not a line of JSON with pid and bytes"})
		return
	}
	if err := s.lend(c, &ask); err != nil {
		_ = reply(c, loanAnswer{Error: err.Error()})
	}
}

// lend registers new memory, sends the peer the keys, and waits until the peer or Close ends the
// loan.
func (s *Lender) lend(c net.Conn, ask *loanRequest) error {
	from, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil || !from.Addr().Unmap().Is4() {
		return fmt.Errorf("connect from the IPv4 address of your NIC, not from %v", c.RemoteAddr())
	}
	if ask.Bytes < 1 || ask.Bytes > MaxLoan {
		return fmt.Errorf("%d bytes: ask for 1 to %d", ask.Bytes, MaxLoan)
	}
	s.mu.Lock()
	if s.lent+ask.Bytes > maxLent {
		defer s.mu.Unlock()
		return fmt.Errorf("%d of %d bytes are lent: end a loan", s.lent, maxLent)
	}
	s.lent += ask.Bytes
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lent -= ask.Bytes
	}()
	s.proc.gate()
	r, err := s.proc.Register(make([]byte, ask.Bytes), verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite)
	if err != nil {
		return err
	}
	defer func() { _ = r.Deregister() }() // the lender has no transfers that could use it
	g, err := r.Grant(from.Addr().Unmap(), ask.PID)
	if err != nil {
		return err
	}
	if err := reply(c, loanAnswer{Grant: &g}); err != nil {
		return nil //nolint:nilerr // the peer has gone, and with it the loan
	}
	_ = c.SetDeadline(time.Time{}) // if it fails, so does the Read that follows
	x := &lending{conn: c, region: r, to: from.Addr().Unmap(), pid: ask.PID, knows: make(chan uint64, 1), over: make(chan struct{})}
	defer close(x.over)
	s.mu.Lock()
	s.conns[c] = x
	s.mu.Unlock()
	in := bufio.NewScanner(c)
	in.Buffer(make([]byte, 0, maxAck), maxAck)
	for in.Scan() { // until the peer ends the loan, or Close is called
		n, err := strconv.ParseUint(in.Text(), 10, 64)
		if err != nil {
			continue
		}
		select {
		case <-x.knows: // a later number replaces it
		default:
		}
		x.knows <- n // there is room, because only this goroutine sends
	}
	return nil
}

// Rotate replaces the keys of all loans: it tells each peer the next keys, waits until the peer knows them,
// and replaces the key of the region. Transfers go on: operations that the NIC has accepted end as they would
// have, and what it refuses is tried again with the next key, in one round trip. A peer that does not answer
// in two seconds gets the new keys, too, and its transfers may fail until it has read them. Rotate returns
// how many keys it has replaced.
func (s *Lender) Rotate() (n int) {
	s.rotating.Lock()
	defer s.rotating.Unlock()
	s.mu.Lock()
	var list []*lending
	for _, x := range s.conns {
		if x != nil {
			list = append(list, x)
		}
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	var replaced atomic.Int64
	for _, x := range list {
		wg.Go(func() {
			if x.rotate() == nil {
				replaced.Add(1)
			}
		})
	}
	wg.Wait()
	return int(replaced.Load())
}

// RotateEvery calls Rotate at this interval until Close; 0 means never.
func (s *Lender) RotateEvery(every time.Duration) {
	if every <= 0 {
		return
	}
	s.wg.Go(func() {
		for t := time.NewTicker(every); ; {
			select {
			case <-t.C:
				s.proc.gate()
				s.Rotate()
			case <-s.done:
				t.Stop()
				return
			}
		}
	})
}

// rotate replaces the key of a loan. An error means that the loan has ended.
func (x *lending) rotate() error {
	var k nic.Key
	_, _ = cryptorand.Read(k[:]) // it never fails
	g, err := x.region.GrantNext(k, x.to, x.pid)
	if err != nil {
		return err
	}
	x.number++
	x.notify(loanAnswer{Grant: &g, Coming: true, Number: x.number})
	t := time.NewTimer(knowWithin)
	defer t.Stop()
	for waits := true; waits; {
		select {
		case n := <-x.knows:
			waits = n != x.number // an earlier number is the late answer to an earlier notice
		case <-x.over:
			waits = false
		case <-t.C:
			waits = false
		}
	}
	if err := x.region.Rotate(k); err != nil {
		return err
	}
	x.notify(loanAnswer{Grant: &g, Number: x.number})
	return nil
}

// notify sends the peer a notice. If that fails, a part of the line may be on its way, after which the peer
// could read no other one: the loan ends.
func (x *lending) notify(a loanAnswer) {
	_ = x.conn.SetWriteDeadline(time.Now().Add(knowWithin)) // if it fails, so does the write
	if reply(x.conn, a) != nil {
		_ = x.conn.Close() // ends the Scan in lend
	}
}

// reply sends an answer. If it fails, the peer sees only the end of the connection.
func reply(c net.Conn, a loanAnswer) error { return json.NewEncoder(c).Encode(a) }

// Close ends the loans and the process.
func (s *Lender) Close() error {
	s.mu.Lock()
	if !s.ended {
		close(s.done)
	}
	s.ended = true
	for c := range s.conns {
		_ = c.Close() // ends the Scan in lend
	}
	s.mu.Unlock()
	err := s.listener.Close()
	s.wg.Wait()
	s.proc.Close()
	return err
}

// Loan is memory of a peer that a process has borrowed.
type Loan struct {
	*Remote
	conn net.Conn
	wg   sync.WaitGroup
}

// Borrow asks the Lender of the host with address addr for memory. The loan ends with Close of the
// Loan or of the Lender, or when one of the two hosts crashes.
func Borrow(ctx context.Context, p *Process, addr netip.Addr, bytes int) (*Loan, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: p.Addr().AsSlice()}}
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(addr.String(), strconv.Itoa(LenderPort)))
	if err != nil {
		return nil, fmt.Errorf("1RMA: memory of %v: %w", addr, err)
	}
	loan, err := borrow(ctx, p, c, addr, bytes)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("1RMA: memory of %v: %w", addr, err), c.Close())
	}
	return loan, nil
}

func borrow(ctx context.Context, p *Process, c net.Conn, addr netip.Addr, bytes int) (*Loan, error) {
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.SetDeadline(time.Unix(1, 0)) // an error means that the connection is closed already
		close(cut)
	})
	in := bufio.NewScanner(c)
	in.Buffer(make([]byte, 0, maxLine), maxLine)
	err := json.NewEncoder(c).Encode(loanRequest{PID: p.PID(), Bytes: bytes})
	if err == nil && !in.Scan() {
		err = errors.Join(cmp.Or(in.Err(), io.ErrUnexpectedEOF), ctx.Err())
	}
	if !stop() { // ctx has ended meanwhile; the loan goes on without it
		<-cut
		_ = c.SetDeadline(time.Time{}) // as above
	}
	if err != nil {
		return nil, err
	}
	var a loanAnswer
	if err := json.Unmarshal(in.Bytes(), &a); err != nil {
		return nil, fmt.Errorf("the answer is not JSON: %w", err)
	}
	if a.Grant == nil {
		return nil, fmt.Errorf("refused: %s", a.Error)
	}
	r, err := a.Grant.Remote(addr)
	if err != nil {
		return nil, err
	}
	l := &Loan{Remote: r, conn: c}
	l.wg.Go(func() { l.listen(p, in) })
	return l, nil
}

// listen takes notices of new keys until the loan ends. It ends the loan if one makes no sense.
func (l *Loan) listen(p *Process, in *bufio.Scanner) {
	for in.Scan() {
		var a loanAnswer
		var keys *Remote
		err := json.Unmarshal(in.Bytes(), &a)
		if err == nil && a.Grant != nil && a.Grant.Region == l.Region {
			keys, err = a.Grant.Remote(l.Addr)
		}
		if err != nil || keys == nil {
			_ = l.conn.Close() // what it was is over
			return
		}
		p.announced(l.Remote, keys, a.Coming)
		if a.Coming {
			if _, err := fmt.Fprintf(l.conn, "%d\n", a.Number); err != nil {
				return
			}
		}
	}
}

// Close ends the loan. Operations on its memory fail from then on.
func (l *Loan) Close() error {
	err := l.conn.Close()
	l.wg.Wait()
	return err
}
