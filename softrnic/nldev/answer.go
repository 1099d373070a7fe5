package nldev

// maxRequests is how many messages of a datagram are executed: programs send one.
const maxRequests = 32

// control is the number below which types of messages belong to netlink itself (NLMSG_MIN_TYPE).
const control = 0x10

// query is a program's request with what is needed to answer it.
type query struct {
	*request
	at     attributes
	s      *Source
	answer func(datagram []byte)
}

// commandRow says how a command is executed: get answers with one message, dump with messages for all
// objects. One that is nil is not there in the kernel either.
type commandRow struct {
	get  func(a *query, m *message) error
	dump func(a *query) error
}

var commands = map[command]commandRow{
	cmdGet:     {(*query).getDevice, (*query).dumpDevices},
	cmdPortGet: {(*query).getPort, (*query).dumpPorts},
	cmdSysGet:  {(*query).getSystem, nil},
	cmdChardev: {(*query).getChardev, nil},
	cmdResGet:  {(*query).getSummary, (*query).dumpSummaries},
	cmdResQP:   objects(QP),
	cmdResCMID: objects(CMID),
	cmdResCQ:   objects(CQ),
	cmdResMR:   objects(MR),
	cmdResPD:   objects(PD),
	cmdResCtx:  objects(Context),
	cmdResSRQ:  objects(SRQ),
	cmdStatGet: {(*query).getCounters, (*query).dumpCounters},
	cmdSet:     refused, cmdNewLink: refused, cmdDelLink: refused, cmdSysSet: refused, cmdStatSet: refused, cmdStatDel: refused,
}

// refused is a command that changes something.
var refused = commandRow{get: func(*query, *message) error { return notSupported }}

// Answer executes the requests of a datagram. It calls answer for each datagram of the answers, in
// their order; answer may keep it. port is the address of the program's socket, for requests that do
// not say it.
func Answer(datagram []byte, port uint32, s *Source, answer func(datagram []byte)) {
	for range maxRequests {
		r, rest, ok := parseRequest(datagram)
		if !ok {
			return // as the kernel, which drops what is no message
		}
		if r.port == 0 {
			r.port = port
		}
		execute(&r, s, answer)
		datagram = rest
	}
}

// execute executes a request, as rdma_nl_rcv_skb of the kernel does.
func execute(r *request, s *Source, answer func([]byte)) {
	acknowledged := r.flags&flagAck != 0
	if r.flags&flagRequest == 0 || r.kind < control {
		if acknowledged {
			answer(failure(r, nil))
		}
		return
	}
	a := &query{request: r, s: s, answer: answer}
	dumped, err := a.run()
	switch {
	case err != nil:
		answer(failure(r, err))
	case dumped:
		answer(done(r))
	case acknowledged:
		answer(failure(r, nil))
	}
}

// run executes a command. dumped: the answer is a dump, whose end has no acknowledgement.
func (a *query) run() (dumped bool, err error) {
	row, ok := commands[command(a.kind&commandsMask)]
	if a.kind>>clientShift != client || !ok {
		return false, invalid
	}
	if a.at, ok = parseAttributes(a.args); !ok {
		return false, invalid
	}
	if a.flags&flagDump != 0 {
		if row.dump == nil {
			return false, invalid
		}
		return true, row.dump(a)
	}
	m := a.begin(0)
	if err := row.get(a, m); err != nil {
		return false, err
	}
	a.answer(m.end())
	return false, nil
}

// begin starts a message of the answer.
func (a *query) begin(flags uint16) *message {
	return begin(header{kind: a.kind, flags: flags, seq: a.seq, port: a.port})
}

// named returns the device that a request names.
func (a *query) named() (*Device, error) {
	i, ok := a.at.u32(attrDevIndex)
	if !ok {
		return nil, invalid
	}
	for _, d := range a.s.Devices() {
		if d.Index == i {
			return &d, nil
		}
	}
	return nil, noDevice
}

// port1 checks the port that a request names. Each device has one port, with the number 1. A request
// that must name one fails without.
func (a *query) port1(must bool) error {
	if p, ok := a.at.u32(attrPortIndex); ok && p != 1 || !ok && must {
		return invalid
	}
	return nil
}
