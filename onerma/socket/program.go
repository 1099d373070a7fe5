package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/onerma/host"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// writeWait is how long a program may leave an answer unread before it is disconnected.
const writeWait = 2 * time.Second

// borrowWait is how long a request to borrow memory may take.
const borrowWait = 10 * time.Second

// program is the daemon's state for one program that is connected to it.
type program struct {
	conn *net.UnixConn
	proc *host.Process
	ctx  context.Context // ends with the connection
	stop context.CancelFunc
	wg   sync.WaitGroup

	sending sync.Mutex // one answer is sent at a time

	mu      sync.Mutex // guards the fields below
	last    uint32     // number of the last region or remote memory
	bytes   int        // of all regions together
	regions map[uint32]*region
	remotes map[uint32]*remote
	cancels map[uint64]context.CancelFunc // of requests in flight, by number
}

// region is memory that the program shares with the daemon, as the daemon has mapped it.
type region struct {
	*host.Region
	bytes []byte
}

// remote is memory of a peer that the program may use. loan is nil if the peer has granted the
// memory, and not lent it.
type remote struct {
	*host.Remote
	loan *host.Loan
}

func newProgram(conn *net.UnixConn, proc *host.Process) *program {
	p := &program{
		conn: conn, proc: proc, regions: make(map[uint32]*region), remotes: make(map[uint32]*remote),
		cancels: make(map[uint64]context.CancelFunc),
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// run executes requests until the connection ends, and then frees what the program has.
func (p *program) run() {
	p.receive()
	p.stop()
	_ = p.conn.Close() // if the program is still there, it sees the end of its connection
	p.wg.Wait()
	p.proc.Close() // the NIC does not use the memory any more
	for _, r := range p.remotes {
		if r.loan != nil {
			_ = r.loan.Close() // the lender sees the end of the connection in any case
		}
	}
	for _, r := range p.regions {
		_ = ring.Unmap(r.bytes) // cannot fail: it is mapped
	}
}

// receive reads requests until the connection ends or a message cannot be decoded.
func (p *program) receive() {
	buf, oob := make([]byte, MaxMessage+1), make([]byte, unix.CmsgSpace(8*4))
	for {
		n, fds, _, err := ring.Receive(p.conn, buf, oob)
		ring.CloseFiles(fds...) // no request has a descriptor
		if err != nil || n == 0 {
			return
		}
		var req request
		if n > MaxMessage {
			err = fmt.Errorf("a message of more than %d bytes", MaxMessage)
		} else {
			err = decode(buf[:n], &req)
		}
		if err != nil {
			p.answer(&answer{Error: "request: " + err.Error()}, nil)
			return
		}
		if req.Do == doCancel {
			p.cancel(req.Of)
			continue
		}
		ctx, end, err := p.begin(&req)
		if err != nil {
			a := answer{ID: req.ID}
			a.fail(err)
			p.answer(&a, nil)
			continue
		}
		p.wg.Go(func() {
			a := answer{ID: req.ID}
			fds, err := p.execute(ctx, &req, &a)
			end()
			a.fail(err)
			p.answer(&a, fds)
		})
	}
}

// begin notes that a request is in flight, so that the program can cancel it from now on. The
// caller must call end when the request has been executed.
func (p *program) begin(req *request) (ctx context.Context, end func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.cancels) >= maxInFlight {
		return nil, nil, fmt.Errorf("%d requests are in flight: wait for an answer", maxInFlight)
	}
	if p.cancels[req.ID] != nil {
		return nil, nil, fmt.Errorf("request %d is in flight: use another number", req.ID)
	}
	ctx, cancel := context.WithCancel(p.ctx)
	if req.Within > 0 {
		cancel()
		ctx, cancel = context.WithTimeout(p.ctx, req.Within)
	}
	p.cancels[req.ID] = cancel
	return ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.cancels, req.ID)
		cancel()
	}, nil
}

// answer sends answer a with at most one file descriptor, and then closes that descriptor.
func (p *program) answer(a *answer, fd []int) {
	p.sending.Lock()
	defer p.sending.Unlock()
	if err := send(p.conn, a, fd); err != nil {
		_ = p.conn.Close() // ends receive
	}
	for _, f := range fd {
		_ = unix.Close(f) // the program has got a descriptor of its own
	}
}

// send sends a message, as one packet of JSON, with file descriptors.
func send(conn *net.UnixConn, message any, fds []int) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(data) > MaxMessage {
		return fmt.Errorf("a message of %d bytes: at most %d are possible", len(data), MaxMessage)
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if err := conn.SetWriteDeadline(time.Now().Add(writeWait)); err != nil {
		return err
	}
	_, _, err = conn.WriteMsgUnix(data, oob, nil)
	return err
}

// execute executes a request and fills in its answer a. It returns the file descriptors to be sent
// with the answer.
func (p *program) execute(ctx context.Context, req *request, a *answer) (fds []int, err error) {
	switch req.Do {
	case doWho:
		a.PID, a.Addr = p.proc.PID(), p.proc.Addr()
	case doMemory:
		return p.memory(req, a)
	case doForget:
		return nil, p.forget(req.Region)
	case doGrant:
		r, err := find(p, p.regions, "region", req.Region)
		if err != nil {
			return nil, err
		}
		g, err := r.Grant(req.Addr, req.PID)
		a.Grant = &g
		return nil, err
	case doBorrow:
		ctx, cancel := context.WithTimeout(ctx, borrowWait)
		defer cancel()
		loan, err := host.Borrow(ctx, p.proc, req.Addr, req.Bytes)
		if err != nil {
			return nil, err
		}
		return nil, p.keep(&remote{loan.Remote, loan}, a)
	case doUse:
		if req.Grant == nil {
			return nil, errors.New("use: no grant")
		}
		m, err := req.Grant.Remote(req.Addr)
		if err != nil {
			return nil, err
		}
		return nil, p.keep(&remote{Remote: m}, a)
	case doGiveBack:
		return nil, p.giveBack(req.Remote)
	case doRead, doWrite:
		return nil, p.move(ctx, req, a)
	case doRekey:
		r, err := find(p, p.remotes, "remote memory", req.Remote)
		if err != nil {
			return nil, err
		}
		k, err := parseKey(req.Key)
		if err != nil {
			return nil, err
		}
		return nil, p.proc.Rekey(r.Remote, k)
	case doPolicy:
		return nil, p.proc.SetPolicy(req.Policy)
	default:
		return nil, fmt.Errorf("request %.40q is not known", req.Do)
	}
	return nil, nil
}

// memory makes and registers new memory, and returns the file descriptor by which the program maps
// it.
func (p *program) memory(req *request, a *answer) (fds []int, err error) {
	const allowed = verbs.LocalWrite | verbs.RemoteRead | verbs.RemoteWrite
	if req.Bytes < 1 || req.Bytes > maxMemory || req.Access&^allowed != 0 {
		return nil, fmt.Errorf("memory of %d bytes with access %v: use 1 to %d, and LocalWrite, RemoteRead and RemoteWrite", req.Bytes, req.Access, maxMemory)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.regions) >= maxObjects || p.bytes+req.Bytes > maxMemory {
		return nil, fmt.Errorf("the program has %d regions of %d bytes together; at most %d and %d are possible", len(p.regions), p.bytes, maxObjects, maxMemory)
	}
	fd, err := ring.New("onerma", req.Bytes)
	if err != nil {
		return nil, err
	}
	b, err := ring.Map(fd, req.Bytes)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	r, err := p.proc.Register(b, req.Access)
	if err != nil {
		return nil, errors.Join(err, ring.Unmap(b), unix.Close(fd))
	}
	p.last++
	p.regions[p.last] = &region{r, b}
	p.bytes += req.Bytes
	a.Region, a.Length = p.last, uint64(req.Bytes)
	return []int{fd}, nil
}

// forget deregisters and unmaps a region of the program. It fails while transfers use the region.
func (p *program) forget(number uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.regions[number]
	if r == nil {
		return fmt.Errorf("no region %d", number)
	}
	if err := r.Deregister(); err != nil {
		return err
	}
	delete(p.regions, number)
	p.bytes -= len(r.bytes)
	return ring.Unmap(r.bytes)
}

// find returns the object with a number in a map of p. The error names the object's kind by the
// text in what.
func find[T any](p *program, in map[uint32]*T, what string, number uint32) (*T, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := in[number]; r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("no %s %d", what, number)
}

// keep gives memory of a peer a number, by which the program names the memory, and puts this number
// into answer a.
func (p *program) keep(r *remote, a *answer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.remotes) >= maxObjects {
		err := fmt.Errorf("the program uses %d pieces of remote memory: give one back", maxObjects)
		if r.loan != nil {
			err = errors.Join(err, r.loan.Close())
		}
		return err
	}
	p.last++
	p.remotes[p.last] = r
	a.Remote, a.Length = p.last, r.Length
	return nil
}

func (p *program) giveBack(number uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.remotes[number]
	if r == nil {
		return fmt.Errorf("no remote memory %d", number)
	}
	delete(p.remotes, number)
	if r.loan == nil {
		return nil
	}
	return r.loan.Close()
}

func (p *program) move(ctx context.Context, req *request, a *answer) error {
	r, err := find(p, p.remotes, "remote memory", req.Remote)
	if err != nil {
		return err
	}
	local, err := find(p, p.regions, "region", req.Region)
	if err != nil {
		return err
	}
	t := host.Transfer{
		Class: req.Class, Remote: r.Remote, Offset: req.Offset, Length: req.Length, Local: local.Region, LocalOffset: req.At, Once: req.Once,
	}
	if req.Do == doRead {
		a.Result, err = p.proc.Read(ctx, t)
	} else {
		a.Result, err = p.proc.Write(ctx, t)
	}
	return err
}

// cancel cancels the request with this number, so that its transfer ends early. It does nothing if
// no such request is in flight.
func (p *program) cancel(request uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cancel := p.cancels[request]; cancel != nil {
		cancel()
	}
}
