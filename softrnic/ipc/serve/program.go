package serve

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// program is a client that is an unmodified program over libibverbs: a preloaded library (package
// uverbs) forwards the program's commands. All its rings are in one memory file (a memfd), the
// area, which begins with the control page.
//
// The goroutine that reads the socket executes the commands one after the other. A child of fork has the
// device of its parent: it sends its commands for the same program on a connection of its own (see kin).
type program struct {
	c    *client
	self *caller
	by   *caller // of the command that is being executed: self, or a child of fork
	kin  kin
	// unshared has the shares that the library has ended while it closed this client's connection, and
	// in which the client still had regions. The daemon unmaps them when the client has ended.
	unshared []*share
	// unsharedLogged is true when the log has said why memory of the program is not shared.
	unsharedLogged bool
	// refusals counts the modify commands of queue pairs that were refused.
	refusals int
	// async is the daemon's side of the descriptor for asynchronous events.
	async   eventQueue
	tags    uint32                        // the last tag of an owner
	sweeper sweeper                       // of completion channels
	objects map[uverbsKind]map[uint32]any // by their handles
	next    [uverbsKinds]uint32           // the handle to try next, for each kind
	dms     deviceMemories
	queues  programQueues
}

// uverbsKind is a kind of libibverbs objects. Each kind has its own handles, which begin at 0.
type uverbsKind int

const (
	uPD uverbsKind = iota
	uMR
	uMW
	uAH
	uCQ
	uQP
	uSRQ
	uXRCD
	uChannel
	uverbsKinds
)

var kindNames = [uverbsKinds]string{
	uPD: "protection domain", uMR: "region", uMW: "memory window", uAH: "address handle", uCQ: "completion queue", uQP: "queue pair",
	uSRQ: "shared receive queue", uXRCD: "XRC domain", uChannel: "completion channel",
}

// maxHelloFDs is the largest number of descriptors that are received with a first message. It is
// larger than uverbs.HelloFDs, so that a message with too many descriptors is noticed and refused.
const maxHelloFDs = 8

// receive reads the first message. fds are the descriptors that came with it; the caller must close
// them.
func (c *client) receive(buf []byte) (n int, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*maxHelloFDs))
	n, fds, _, err = ring.Receive(c.conn, buf, oob)
	return n, fds, err
}

// serveUnmodified answers the commands of an unmodified program. It closes fds.
func (c *client) serveUnmodified(h uverbs.Hello, fds []int, buf []byte) error {
	if err := c.conn.SetReadDeadline(time.Time{}); err != nil {
		return errors.Join(err, closeAll(fds))
	}
	c.token = h.Token
	c.objects.limits = &c.bounds.all
	attach, execute := c.attachProgram, c.executeProgram
	switch {
	case h.Manager:
		attach, execute = c.attachManager, c.executeManager
	case h.Child:
		attach = c.attachChild
	}
	if err := attach(h.Name, fds); err != nil {
		a := uverbs.Answer{Errno: uint32(errnoOf(err))}
		_ = c.send(outgoing{data: a.AppendTo(nil)}) // the program may not read it
		return err
	}
	for {
		n, fds, err := c.receive(buf)
		if err != nil {
			return noMessage(err)
		}
		if c.as != nil {
			c.as.sent = fds
		}
		err = execute(buf[:n])
		if err := errors.Join(err, closeSoon(fds)); err != nil {
			return err
		}
	}
}

// closeWait is how long the close of a program's descriptors may take: that of a socket may wait for its peer.
const closeWait = time.Second

// closeSoon closes descriptors of a program; what their close says is nothing to the connection. It returns
// an error, by which the connection ends, if that takes too long; then they close later.
func closeSoon(fds []int) error {
	if len(fds) == 0 {
		return nil
	}
	closed := make(chan struct{})
	go func() {
		_ = closeAll(fds)
		close(closed)
	}()
	select {
	case <-closed:
		return nil
	case <-time.After(closeWait):
		return errors.New("the program has sent a descriptor whose close waits")
	}
}

func (c *client) executeProgram(b []byte) error {
	cmd, err := uverbs.ParseCommand(b)
	if err != nil {
		return err
	}
	return c.as.of.execute(cmd, c.as)
}

func (c *client) attachProgram(name string, fds []int) error {
	mem, err := newProgramMemory(fds, c.cred.Uid, c.s.stuck)
	if err != nil {
		return err
	}
	p := &program{
		c: c, kin: newKin(), objects: make(map[uverbsKind]map[uint32]any), dms: deviceMemories{c: c, all: make(map[uint32]verbs.DM)},
		queues: programQueues{qpOwners: make(map[wire.QPN]*owner), cqOwners: make(map[uint32]*owner), srqOwners: make(map[uint32]*owner)},
	}
	p.queues.p = p
	for k := range uverbsKinds {
		p.objects[k] = make(map[uint32]any)
	}
	out, err := p.open(name)
	if err != nil {
		return errors.Join(err, mem.close())
	}
	p.self = &caller{c: c, of: p, mem: mem, process: c.s.processes.enter(c.processKey())}
	p.kin.hold(mem)
	c.as = p.self
	if err := c.s.programs.add(p); err != nil {
		return errors.Join(err, closeAll(out))
	}
	a := uverbs.Answer{Data: uverbs.Encode(uint64(p.queues.area.size()))}
	return c.put(a, out)
}

// open makes the program's verbs context, its area (the memory file of its rings) and the socket by
// which daemon and program wake each other. After an error c.prog is nil.
func (p *program) open(name string) (fds []int, err error) {
	c := p.c
	length := c.bounds.all.areaLen()
	fd, bytes, err := newMemory("verbs-area", length)
	if err != nil {
		return nil, err
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(limitError("attach", "memory file: %v", err), unix.Close(fd), ring.Unmap(bytes))
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(limitError("attach", "wake socket: %v", err), closeAll([]int{fd, own}), ring.Unmap(bytes))
	}
	c.openWake(pair[0])
	p.queues.area = newArea(fd, bytes)
	c.ctx = c.s.cfg.Open().(*verbsengine.Context) // Listen has checked that it is a *verbsengine.Context
	c.start(name, bytes, p)
	return []int{own, pair[1]}, nil
}

// put queues an answer with file descriptors, which are closed after the answer was sent.
func (c *client) put(a uverbs.Answer, fds []int) error {
	select {
	case c.out <- outgoing{a.AppendTo(nil), fds}:
		return nil
	case <-c.gone:
	}
	return errors.Join(errors.New("answers are not read"), closeAll(fds))
}

// close closes the program's event descriptors, memory and area. The context is already closed.
func (p *program) close() error {
	for _, o := range p.objects[uChannel] {
		o.(*eventQueue).close()
	}
	p.async.close()
	return errors.Join(p.closeShares(), p.kin.closeMemory(), unix.Close(p.queues.area.fd))
}

type result struct {
	uverbs.Answer
	fds []int
}

// answer returns a result that contains the structs as bytes.
func answer(structs ...any) result {
	return result{Answer: uverbs.Answer{Data: uverbs.Encode(structs...)}}
}

type programHandler func(p *program, c uverbs.Command) (result, error)

// programCommands are the commands that a program may send after its first message.
var programCommands map[uverbs.Op]programHandler

// command makes a command handler of function f, whose arguments have type A.
func command[A any](f func(p *program, a A) (result, error)) programHandler {
	return func(p *program, c uverbs.Command) (result, error) {
		a, ok := uverbs.Decode[A](c)
		if !ok {
			return result{}, unix.EINVAL
		}
		return f(p, a)
	}
}

// programQueues executes the commands that concern queues and address handles.
type programQueues struct {
	p    *program
	area area // the memory of the rings
	// The queue pairs, completion queues and shared receive queues to which asynchronous events
	// refer, by their numbers on the NIC. Exclusive use of the engine guards the maps.
	qpOwners  map[wire.QPN]*owner
	cqOwners  map[uint32]*owner
	srqOwners map[uint32]*owner
}

// ofQueues makes a command handler of a method of programQueues (see the function `command`).
func ofQueues[A any](f func(q *programQueues, a A) (result, error)) programHandler {
	return command(func(p *program, a A) (result, error) { return f(&p.queues, a) })
}

// objectArgs are the arguments of a command that is about an object, or makes an object in a
// protection domain: Object returns the handle of the object or the domain.
type objectArgs interface{ Object() uint32 }

// of makes a command handler of function f, whose first argument is the object of kind k that the
// command names.
func of[T any, A objectArgs](k uverbsKind, f func(p *program, o T, a A) (result, error)) programHandler {
	return command(func(p *program, a A) (result, error) {
		o, err := named[T](p, k, a.Object())
		if err != nil {
			return result{}, err
		}
		return f(p, o, a)
	})
}

// ofQueue makes a command handler of a method f of (*programQueues). The first argument of f is the
// object of kind k that the command names (see the function `of`).
func ofQueue[T any, A objectArgs](k uverbsKind, f func(q *programQueues, o T, a A) (result, error)) programHandler {
	return of(k, func(p *program, o T, a A) (result, error) { return f(&p.queues, o, a) })
}

// ofXRC is ofQueue for a method f of programXRC.
func ofXRC[T any, A objectArgs](k uverbsKind, f func(x programXRC, o T, a A) (result, error)) programHandler {
	return of(k, func(p *program, o T, a A) (result, error) { return f(p.xrc(), o, a) })
}

func init() { // a composite literal at the declaration would be an initialization cycle
	programCommands = map[uverbs.Op]programHandler{
		uverbs.GetContext:                    command((*program).getContext),
		uverbs.QueryDevice:                   command((*program).queryDevice),
		uverbs.QueryDevice | uverbs.Extended: command((*program).queryDeviceEx),
		uverbs.QueryPort:                     command((*program).queryPort),
		uverbs.AllocPD:                       command((*program).allocPD),
		uverbs.DeallocPD:                     of(uPD, (*program).deallocPD),
		uverbs.RegMR:                         of(uPD, (*program).regMR),
		uverbs.DeregMR:                       of(uMR, (*program).deregMR),
		uverbs.ReregMR:                       of(uMR, (*program).reregMR),
		uverbs.QueryMR:                       of(uMR, (*program).queryMR),
		uverbs.AllocDM:                       command(func(p *program, a uverbs.AllocDMArgs) (result, error) { return p.dms.alloc(a) }),
		uverbs.FreeDM:                        ofMemory((*deviceMemories).free),
		uverbs.CopyToDM:                      func(p *program, c uverbs.Command) (result, error) { return p.dms.copyTo(c) },
		uverbs.CopyFromDM:                    ofMemory((*deviceMemories).copyFrom),
		uverbs.RegDM:                         of(uPD, (*program).regDM),
		uverbs.QueryDM:                       ofMemory((*deviceMemories).query),
		uverbs.QueryLimits:                   func(p *program, _ uverbs.Command) (result, error) { return p.dms.limits() },
		uverbs.UseRing:                       ofQueue(uQP, (*programQueues).useRing),
		uverbs.Doorbell:                      ofQueue(uQP, (*programQueues).doorbell),
		uverbs.CQNumber:                      ofQueue(uCQ, (*programQueues).cqNumber),
		uverbs.AllocMW:                       of(uPD, (*program).allocMW),
		uverbs.DeallocMW:                     of(uMW, (*program).deallocMW),
		uverbs.CreateAH:                      ofQueue(uPD, (*programQueues).createAH),
		uverbs.DestroyAH:                     ofQueue(uAH, (*programQueues).destroyAH),
		uverbs.CreateCompChannel:             command((*program).createChannel),
		uverbs.CreateCQ:                      func(p *program, c uverbs.Command) (result, error) { return p.queues.createCQ(c) },
		uverbs.CreateCQ | uverbs.Extended:    func(p *program, c uverbs.Command) (result, error) { return p.queues.createCQEx(c) },
		uverbs.ResizeCQ:                      ofQueue(uCQ, (*programQueues).resizeCQ),
		uverbs.ModifyCQ | uverbs.Extended:    ofQueue(uCQ, (*programQueues).modifyCQ),
		uverbs.DestroyCQ:                     ofQueue(uCQ, (*programQueues).destroyCQ),
		uverbs.ReqNotifyCQ:                   ofQueue(uCQ, (*programQueues).notifyCQ),
		uverbs.CreateQP:                      ofQueues((*programQueues).createQP),
		uverbs.CreateQP | uverbs.Extended:    ofQueues((*programQueues).createQPEx),
		uverbs.QueryQP:                       ofQueue(uQP, (*programQueues).queryQP),
		uverbs.ModifyQP:                      ofQueue(uQP, (*programQueues).modifyQP),
		uverbs.ModifyQP | uverbs.Extended:    ofQueue(uQP, (*programQueues).modifyQP),
		uverbs.DestroyQP:                     ofQueue(uQP, (*programQueues).destroyQP),
		uverbs.PostSend:                      ofQueue(uQP, (*programQueues).postSend),
		uverbs.CreateSRQ:                     ofQueue(uPD, (*programQueues).createSRQ),
		uverbs.ModifySRQ:                     ofQueue(uSRQ, (*programQueues).modifySRQ),
		uverbs.QuerySRQ:                      ofQueue(uSRQ, (*programQueues).querySRQ),
		uverbs.DestroySRQ:                    ofQueue(uSRQ, (*programQueues).destroySRQ),
		uverbs.OpenXRCD:                      command(func(p *program, a uverbs.XRCDArgs) (result, error) { return p.xrc().open(a) }),
		uverbs.CloseXRCD:                     ofXRC(uXRCD, programXRC.close),
		uverbs.CreateXSRQ:                    ofXRC(uPD, programXRC.createSRQ),
		uverbs.OpenQP:                        ofXRC(uXRCD, programXRC.openTarget),
		uverbs.AttachMulticast:               ofQueue(uQP, (*programQueues).attachMulticast),
		uverbs.DetachMulticast:               ofQueue(uQP, (*programQueues).detachMulticast),
		uverbs.Repost:                        (*program).repost,
		uverbs.ShareMemory:                   command((*program).share),
		uverbs.UnshareMemory:                 command((*program).unshare),
	}
}

// execute executes one command of a process. An error of the command goes into the answer; an error that
// execute returns ends the connection of the process.
func (p *program) execute(cmd uverbs.Command, by *caller) error {
	f := programCommands[cmd.Op]
	if f == nil {
		return by.c.put(uverbs.Answer{Errno: uint32(unix.EOPNOTSUPP)}, nil)
	}
	r, err := p.call(f, cmd, by)
	switch {
	case errors.Is(err, errDeviceGone):
		return err
	case err != nil:
		p.c.notMade(makes[cmd.Op&^uverbs.Extended], err)
		r = result{Answer: uverbs.Answer{Errno: uint32(errnoOf(err))}}
	}
	return by.c.put(r.Answer, r.fds)
}

// errnos has the errno that a kernel driver would return, for each error of package verbs. All
// other errors are EIO.
var errnos = []struct {
	err   error
	errno unix.Errno
}{
	{verbs.ErrInvalid, unix.EINVAL},
	{verbs.ErrState, unix.EINVAL},
	{verbs.ErrNoSpace, unix.ENOMEM},
	{verbs.ErrBusy, unix.EBUSY},
	{verbs.ErrLimit, unix.ENOMEM},
	{verbs.ErrAccess, unix.EACCES},
	{verbs.ErrTimeout, unix.ETIMEDOUT},
	{verbs.ErrClosed, unix.EIO},
	{verbs.ErrNotSupported, unix.EOPNOTSUPP},
	{verbs.ErrUnreachable, unix.EHOSTUNREACH},
}

func errnoOf(err error) unix.Errno {
	var no unix.Errno
	if errors.As(err, &no) {
		return no
	}
	for _, e := range errnos {
		if errors.Is(err, e.err) {
			return e.errno
		}
	}
	return unix.EIO
}

func (p *program) add(k uverbsKind, o any) uint32 {
	for {
		h := p.next[k]
		if p.next[k]++; p.objects[k][h] == nil {
			p.objects[k][h] = o
			return h
		}
	}
}

// named returns the object of kind k with handle h. It fails with EINVAL if there is none.
func named[T any](p *program, k uverbsKind, h uint32) (T, error) {
	o, ok := p.objects[k][h].(T)
	if !ok {
		return o, fmt.Errorf("no %s has handle %d: %w", kindNames[k], h, unix.EINVAL)
	}
	return o, nil
}

// getContext returns the descriptor for asynchronous events.
func (p *program) getContext(struct{}) (result, error) {
	if p.async.sock != 0 {
		return result{}, unix.EINVAL // a connection has one context
	}
	var q eventQueue
	fd, err := q.open()
	if err != nil {
		return result{}, err
	}
	q.widen()
	p.with(func(*port) { p.async.sock = q.sock }) // from now on events can be sent
	r := answer(uverbs.Context{Vectors: 1})
	r.fds = []int{fd}
	return r, nil
}

// Attributes of the NIC that a program sees: values that the Linux driver rxe reports, and limits
// of this daemon.
const (
	programSGEs  = 32
	programWRs   = 8192
	vendor       = 0xffffff
	pageSizes    = 0xfffff000
	atomicsOfHCA = 1
)

// device returns the attributes of the NIC, reduced to the limits of a single program.
func (p *program) device() uverbs.Device {
	l, pool := &p.c.bounds.all, &p.c.s.pool
	d := pool.bound(p.c.ctx.Device(), l)
	gid := verbs.LinkLocalGID(d.MAC)
	guid := [8]byte(gid[8:])
	sges, wrs := uint32(min(d.MaxSGE, programSGEs)), uint32(min(d.MaxQPWR/2, programWRs))
	return uverbs.Device{
		NodeGUID: guid, SysImageGUID: guid, MaxMRSize: 1 << 46, PageSizeCap: pageSizes, VendorID: vendor,
		DeviceQueues: uverbs.DeviceQueues{
			MaxQP: uint32(d.MaxQP), MaxQPWR: wrs, CapFlags: uverbs.Capabilities, MaxSGE: sges, MaxSGERd: sges,
			MaxCQ: uint32(pool.most(l, kindCQ)), MaxCQE: uint32(mostCQE(d.MaxCQE)),
			MaxMR: uint32(pool.most(l, kindMR)), MaxPD: uint32(pool.most(l, kindPD)),
		},
		DeviceAtomics: uverbs.DeviceAtomics{
			QPRd: uint32(d.MaxRdAtomic), ResRd: uint32(d.MaxRdAtomic * d.MaxQP), QPInitRd: uint32(d.MaxRdAtomic), AtomicCap: atomicsOfHCA,
		},
		DeviceMore: uverbs.DeviceMore{
			Groups: uint32(d.MaxAttachments), GroupQPs: uint32(d.MaxGroupQPs), TotalGroupQPs: uint32(d.MaxAttachments),
			MaxMW: uint32(pool.most(l, kindMW)), MaxAH: uint32(d.MaxAH), MaxSRQ: uint32(d.MaxSRQ), MaxSRQWR: wrs, MaxSRQSGE: sges,
		},
		MaxPKeys: uint16(len(d.PKeys)), AckDelay: cm.AckDelay, Port: 1,
	}
}

func (p *program) queryDevice(struct{}) (result, error) { return answer(p.device()), nil }

func (p *program) queryDeviceEx(struct{}) (result, error) {
	d := p.device()
	ex := uverbs.ExDevice{CapFlagsEx: uint64(d.CapFlags) | uverbs.CapabilitiesEx}
	ex.Length = uint32(len(uverbs.Encode(d, ex)))
	return answer(d, ex), nil
}

// queryPort returns the attributes of the only port.
func (p *program) queryPort(a uverbs.PortArgs) (result, error) {
	if a.Port != 1 {
		return result{}, unix.EINVAL
	}
	const (
		ethernet  = 2
		ipBased   = 1 << 26
		oneX, edr = 1, 32 // 25 Gb/s, as the file rate says (uverbs.Tree)
	)
	d := p.c.ctx.Device()
	state := uverbs.PortOf(&d)
	return answer(uverbs.Port{
		CapFlags: ipBased, MaxMsg: d.MaxMsgSize, GIDs: uint32(len(d.GIDs) + 1), PKeys: uint16(len(d.PKeys)), MaxVL: 1,
		PortState: uverbs.PortState{State: state.Logical, MaxMTU: cm.MTUCode(verbs.MTU4096), ActiveMTU: cm.MTUCode(d.ActiveMTU)},
		PortLink:  uverbs.PortLink{Width: oneX, Speed: edr, Phys: state.Physical, LinkLayer: ethernet},
	}), nil
}
