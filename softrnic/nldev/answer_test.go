package nldev

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// twoNICs describes a host with two NICs: the first one has objects.
func twoNICs() Source {
	objects := map[Kind][]Object{
		PD: {{Number: 3, Uses: 2, Owner: Owner{PID: 77}}},
		CQ: {{Number: 1, Depth: 1, Owner: Owner{Kernel: "rdmalab"}}, {Number: 4, Depth: 128, Uses: 1, Owner: Owner{PID: 77}}},
		QP: {
			{Number: 17, PD: 3, Owner: Owner{PID: 77}, Queue: Queue{Type: 2, State: 3, Connected: true, Remote: 99, SendPSN: 5, RecvPSN: 6}},
			{Number: 18, Owner: Owner{Kernel: "rdmalab"}, Queue: Queue{Type: 4, State: 3}},
		},
		MR:      {{Number: 5, PD: 3, Owner: Owner{PID: 77}, Memory: Memory{LKey: 0x100, RKey: 0x101, Length: 4096}}},
		CMID:    {{Number: 2, Owner: Owner{PID: 77}, Conn: Conn{QP: 17, Type: 2, Space: 0x106, State: 5, Src: netip.MustParseAddrPort("10.77.0.2:4000"), Dst: netip.MustParseAddrPort("[fd00::1]:5000")}}},
		Context: {{Number: 8, Owner: Owner{PID: 77}}},
		SRQ:     {{Number: 6, PD: 3, Owner: Owner{PID: 77}, Users: []uint32{17, 20, 21, 22}}},
	}
	return Source{
		SeesPIDs: true,
		SeesKeys: true,
		Devices: func() []Device {
			return []Device{
				{Index: 0, Name: "rxe0", Firmware: "1.0", NodeGUID: 0x1122, ImageGUID: 0x1122, Caps: 6, Port: Port{State: 4, Physical: 5, Ifname: "rack0", Ifindex: 9}, Chardev: "uverbs0", ChardevABI: 2},
				{Index: 1, Name: "rxe1", Port: Port{State: 1, Physical: 2}, Chardev: "uverbs1", ChardevABI: 2},
			}
		},
		Objects: func(d uint32, k Kind) []Object {
			if d != 0 {
				return nil
			}
			return slices.Clone(objects[k])
		},
		Counters: func(d uint32) []Counter { return []Counter{{"sent_pkts", 40 + uint64(d)}, {"rcvd_pkts", 1 << 40}} },
	}
}

// ask makes a request.
func ask(c command, flags uint16, attrs func(m *message)) []byte {
	m := begin(header{kind: client<<clientShift | uint16(c), flags: unix.NLM_F_REQUEST | flags, seq: 41})
	if attrs != nil {
		attrs(m)
	}
	return m.end()
}

// tell returns the answers to a request, readable: the kind of each message and its attributes.
func tell(t *testing.T, s Source, datagram []byte) (out []request) {
	t.Helper()
	Answer(datagram, 1234, &s, func(b []byte) {
		if len(b) > MaxDatagram {
			t.Errorf("an answer of %d bytes: tools read %d", len(b), MaxDatagram)
		}
		r, rest, ok := parseRequest(b)
		if !ok || len(rest) != 0 {
			t.Fatalf("% x is no message", b)
		}
		if r.seq != 41 || r.port != 1234 {
			t.Errorf("an answer to request %d of %d", r.seq, r.port)
		}
		out = append(out, r)
	})
	return out
}

func attributesOf(t *testing.T, b []byte) attributes {
	t.Helper()
	a, ok := parseAttributes(b)
	if !ok {
		t.Fatalf("% x are no attributes", b)
	}
	return a
}

// list returns the entries of a table, which all have the same type.
func list(t *testing.T, b []byte) (out []attributes) {
	t.Helper()
	for len(b) >= attrHeader {
		n := int(binary.NativeEndian.Uint16(b))
		out = append(out, attributesOf(t, b[attrHeader:n]))
		b = b[min(align(n), len(b)):]
	}
	return out
}

func errnoOf(r request) unix.Errno { return unix.Errno(-int32(binary.NativeEndian.Uint32(r.args))) }

func must(t *testing.T, a attributes, kind int) uint32 {
	t.Helper()
	v, ok := a.u32(kind)
	if !ok {
		t.Errorf("no attribute %d in %v", kind, a)
	}
	return v
}

// A dump of devices has a message for each, and ends with DONE alone, also if an acknowledgement was
// asked for: rdma of iproute2 asks so.
func TestDevices(t *testing.T) {
	got := tell(t, twoNICs(), ask(cmdGet, unix.NLM_F_DUMP|unix.NLM_F_ACK, nil))
	if len(got) != 3 || got[2].kind != unix.NLMSG_DONE {
		t.Fatalf("%+v", got)
	}
	for i, name := range []string{"rxe0", "rxe1"} {
		a := attributesOf(t, got[i].args)
		if got[i].flags != unix.NLM_F_MULTI || a.text(attrDevName) != name || must(t, a, attrDevIndex) != uint32(i) || must(t, a, attrPortIndex) != 1 || a.text(attrProtocol) != "roce" {
			t.Errorf("%v", a)
		}
	}
	if a := attributesOf(t, got[0].args); binary.NativeEndian.Uint64(a[attrNodeGUID]) != 0x1122 || a[attrNodeType][0] != 1 || a.text(attrFirmware) != "1.0" {
		t.Errorf("%v", a)
	}
	one := tell(t, twoNICs(), ask(cmdGet, unix.NLM_F_ACK, func(m *message) { m.u32(attrDevIndex, 1) }))
	if len(one) != 2 || attributesOf(t, one[0].args).text(attrDevName) != "rxe1" || one[1].kind != unix.NLMSG_ERROR || errnoOf(one[1]) != 0 {
		t.Errorf("%+v", one)
	}
}

func TestPorts(t *testing.T) {
	name := func(m *message) { m.u32(attrDevIndex, 0); m.u32(attrPortIndex, 1) }
	got := tell(t, twoNICs(), ask(cmdPortGet, 0, name))
	a := attributesOf(t, got[0].args)
	if len(got) != 1 || a[attrPortState][0] != 4 || a[attrPortPhysState][0] != 5 || a.text(attrNdevName) != "rack0" || must(t, a, attrNdevIndex) != 9 {
		t.Errorf("%v", a)
	}
	got = tell(t, twoNICs(), ask(cmdPortGet, unix.NLM_F_DUMP, func(m *message) { m.u32(attrDevIndex, 1) }))
	if a := attributesOf(t, got[0].args); len(got) != 2 || a[attrPortState][0] != 1 || a[attrNdevName] != nil {
		t.Errorf("%v", got)
	}
}

// libibverbs and librdmacm find their character devices, and learn that forks need no care.
func TestLibraries(t *testing.T) {
	for device, want := range map[int]string{-1: "rdma_cm", 0: "uverbs0", 1: "uverbs1"} {
		got := tell(t, twoNICs(), ask(cmdChardev, 0, func(m *message) {
			kind := "rdma_cm"
			if device >= 0 {
				m.u32(attrDevIndex, uint32(device))
				kind = "uverbs"
			}
			m.text(attrChardevType, kind)
		}))
		if a := attributesOf(t, got[0].args); len(got) != 1 || a.text(attrChardevName) != want || binary.NativeEndian.Uint64(a[attrChardev]) != 0x103 {
			t.Errorf("%v, want %s", got, want)
		}
	}
	got := tell(t, twoNICs(), ask(cmdSysGet, 0, nil))
	if a := attributesOf(t, got[0].args); len(got) != 1 || a[attrCopyOnFork][0] != 1 {
		t.Errorf("%v", got)
	}
}

func TestObjects(t *testing.T) {
	named := func(m *message) { m.u32(attrDevIndex, 0) }
	for c, want := range map[command]struct {
		table  int
		number []uint32
		id     int
	}{
		cmdResPD: {attrResPD, []uint32{3}, attrPDN}, cmdResCQ: {attrResCQ, []uint32{1, 4}, attrCQN}, cmdResQP: {attrResQP, []uint32{17, 18}, attrLQPN},
		cmdResMR: {attrResMR, []uint32{5}, attrMRN}, cmdResCMID: {attrResCMID, []uint32{2}, attrCMIDN}, cmdResCtx: {attrResCtx, []uint32{8}, attrCtxN},
		cmdResSRQ: {attrResSRQ, []uint32{6}, attrSRQN},
	} {
		got := tell(t, twoNICs(), ask(c, unix.NLM_F_DUMP, named))
		if len(got) != 2 {
			t.Fatalf("command %d: %+v", c, got)
		}
		var has []uint32
		for _, o := range list(t, attributesOf(t, got[0].args)[want.table]) {
			has = append(has, must(t, o, want.id))
			_, pid := o.u32(attrResPID)
			if pid == (o.text(attrResKernel) != "") {
				t.Errorf("command %d: %v has two owners, or none", c, o)
			}
		}
		if !slices.Equal(has, want.number) {
			t.Errorf("command %d: %v, want %v", c, has, want.number)
		}
		one := tell(t, twoNICs(), ask(c, 0, func(m *message) { named(m); m.u32(want.id, want.number[0]) }))
		if len(one) != 1 || must(t, attributesOf(t, one[0].args), want.id) != want.number[0] {
			t.Errorf("command %d: %+v", c, one)
		}
		if none := tell(t, twoNICs(), ask(c, 0, func(m *message) { named(m); m.u32(want.id, 1000) })); errnoOf(none[0]) != unix.ENOENT {
			t.Errorf("command %d: %+v", c, none)
		}
	}
}

// A queue pair says what ibv_query_qp says; the address of an identifier is a sockaddr.
func TestFields(t *testing.T) {
	one := func(c command, id int, number uint32) attributes {
		return attributesOf(t, tell(t, twoNICs(), ask(c, 0, func(m *message) { m.u32(attrDevIndex, 0); m.u32(id, number) }))[0].args)
	}
	q := one(cmdResQP, attrLQPN, 17)
	if must(t, q, attrRQPN) != 99 || must(t, q, attrSQPSN) != 5 || must(t, q, attrRQPSN) != 6 || q[attrResType][0] != 2 || q[attrResState][0] != 3 || must(t, q, attrResPID) != 77 {
		t.Errorf("%v", q)
	}
	if u := one(cmdResQP, attrLQPN, 18); u[attrRQPN] != nil || u[attrPDN] != nil || u.text(attrResKernel) != "rdmalab" {
		t.Errorf("%v", u)
	}
	c := one(cmdResCMID, attrCMIDN, 2)
	if fmt.Sprintf("% x", c[attrResSrc][2:8]) != "0f a0 0a 4d 00 02" || len(c[attrResSrc]) != 128 || binary.NativeEndian.Uint16(c[attrResDst]) != unix.AF_INET6 || c[attrResDst][8] != 0xfd {
		t.Errorf("%v", c)
	}
	s := list(t, one(cmdResSRQ, attrSRQN, 6)[attrResQP])
	if len(s) != 2 || must(t, s[0], attrLQPN) != 17 || must(t, s[1], attrMinRange) != 20 || must(t, s[1], attrMaxRange) != 22 {
		t.Errorf("%v", s)
	}
}

// A program that is in another PID namespace gets no process IDs, which it would look up in its own.
func TestForeignProcesses(t *testing.T) {
	s := twoNICs()
	s.SeesPIDs = false
	got := tell(t, s, ask(cmdResMR, unix.NLM_F_DUMP, func(m *message) { m.u32(attrDevIndex, 0) }))
	if o := list(t, attributesOf(t, got[0].args)[attrResMR]); o[0][attrResPID] != nil {
		t.Errorf("%v", o)
	}
}

// A program without the right to know the keys of others' memory gets the regions without their keys.
func TestKeysOfOthers(t *testing.T) {
	for _, sees := range []bool{true, false} {
		s := twoNICs()
		s.SeesKeys = sees
		got := tell(t, s, ask(cmdResMR, unix.NLM_F_DUMP, func(m *message) { m.u32(attrDevIndex, 0) }))
		o := list(t, attributesOf(t, got[0].args)[attrResMR])
		if must(t, o[0], attrMRN) != 5 || (o[0][attrRKey] != nil) != sees || (o[0][attrLKey] != nil) != sees {
			t.Errorf("sees keys %v: %v", sees, o)
		}
	}
}

// A list that does not fit a message goes on in the next one.
func TestLongLists(t *testing.T) {
	s := twoNICs()
	s.Objects = func(uint32, Kind) (out []Object) {
		for i := range 1000 {
			out = append(out, Object{Number: uint32(i), Owner: Owner{PID: 1}, Queue: Queue{Connected: true}, Conn: Conn{QP: 1, Src: netip.MustParseAddrPort("1.2.3.4:5"), Dst: netip.MustParseAddrPort("1.2.3.4:5")}, Users: []uint32{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35}})
		}
		return out
	}
	for _, c := range []struct {
		command
		table, id int
	}{{cmdResQP, attrResQP, attrLQPN}, {cmdResCMID, attrResCMID, attrCMIDN}, {cmdResSRQ, attrResSRQ, attrSRQN}} {
		next := uint32(0)
		for _, r := range tell(t, s, ask(c.command, unix.NLM_F_DUMP, func(m *message) { m.u32(attrDevIndex, 0) })) {
			if r.kind == unix.NLMSG_DONE {
				break
			}
			for _, o := range list(t, attributesOf(t, r.args)[c.table]) {
				if must(t, o, c.id) != next {
					t.Fatalf("object %v, want %d", o, next)
				}
				next++
			}
		}
		if next != 1000 {
			t.Errorf("command %d: %d objects", c.command, next)
		}
	}
}

func TestSummaryAndCounters(t *testing.T) {
	got := tell(t, twoNICs(), ask(cmdResGet, 0, func(m *message) { m.u32(attrDevIndex, 0) }))
	text := ""
	for _, e := range list(t, attributesOf(t, got[0].args)[attrResSummary]) {
		text += fmt.Sprint(e.text(attrSummaryName), binary.NativeEndian.Uint64(e[attrSummaryCurr]), " ")
	}
	if text != "pd1 cq2 qp2 cm_id1 mr1 ctx1 srq1 " {
		t.Error(text)
	}
	if got := tell(t, twoNICs(), ask(cmdResGet, unix.NLM_F_DUMP, nil)); len(got) != 3 {
		t.Errorf("%+v", got)
	}
	port := func(m *message) { m.u32(attrDevIndex, 1); m.u32(attrPortIndex, 1) }
	got = tell(t, twoNICs(), ask(cmdStatGet, 0, port))
	c := list(t, attributesOf(t, got[0].args)[attrHWCounters])
	if len(c) != 2 || c[0].text(attrHWCounterName) != "sent_pkts" || binary.NativeEndian.Uint64(c[0][attrHWCounterValue]) != 41 || binary.NativeEndian.Uint64(c[1][attrHWCounterValue]) != 1<<40 {
		t.Errorf("%v", c)
	}
	mode := tell(t, twoNICs(), ask(cmdStatGet, 0, func(m *message) { port(m); m.u32(attrStatRes, attrResQP); m.u32(attrStatMode, 2) }))
	if a := attributesOf(t, mode[0].args); must(t, a, attrStatMode) != 0 {
		t.Errorf("%v", a)
	}
	if got := tell(t, twoNICs(), ask(cmdStatGet, unix.NLM_F_DUMP, func(m *message) { port(m); m.u32(attrStatRes, attrResQP) })); len(got) != 1 || got[0].kind != unix.NLMSG_DONE {
		t.Errorf("%+v", got)
	}
}

// What is refused is refused with the errno of a kernel, and nothing else is answered.
func TestRefusals(t *testing.T) {
	dev := func(i uint32) func(*message) { return func(m *message) { m.u32(attrDevIndex, i) } }
	for name, c := range map[string]struct {
		b    []byte
		want unix.Errno
	}{
		"no device":           {ask(cmdGet, 0, nil), unix.EINVAL},
		"unknown device":      {ask(cmdGet, 0, dev(2)), unix.ENODEV},
		"no port":             {ask(cmdPortGet, 0, dev(0)), unix.EINVAL},
		"port 2":              {ask(cmdPortGet, 0, func(m *message) { dev(0)(m); m.u32(attrPortIndex, 2) }), unix.EINVAL},
		"a name":              {ask(cmdSet, 0, func(m *message) { dev(0)(m); m.text(attrDevName, "mlx5_0") }), unix.EOPNOTSUPP},
		"a new link":          {ask(cmdNewLink, 0, nil), unix.EOPNOTSUPP},
		"no number":           {ask(cmdResQP, 0, dev(0)), unix.EINVAL},
		"no device to dump":   {ask(cmdResQP, unix.NLM_F_DUMP, nil), unix.EINVAL},
		"no dump":             {ask(cmdSysGet, unix.NLM_F_DUMP, nil), unix.EINVAL},
		"umad":                {ask(cmdChardev, 0, func(m *message) { dev(0)(m); m.text(attrChardevType, "umad") }), unix.ENODEV},
		"counters of no kind": {ask(cmdStatGet, unix.NLM_F_DUMP, dev(0)), unix.EINVAL},
		"unknown command":     {ask(99, 0, nil), unix.EINVAL},
		"broken attributes":   {ask(cmdGet, 0, func(m *message) { m.b = append(m.b, 200, 0, 1, 0) }), unix.EINVAL},
	} {
		got := tell(t, twoNICs(), c.b)
		if len(got) != 1 || got[0].kind != unix.NLMSG_ERROR || errnoOf(got[0]) != c.want {
			t.Errorf("%s: %+v, want %v", name, got, c.want)
		}
	}
	other := begin(header{kind: 4 << clientShift, flags: unix.NLM_F_REQUEST, seq: 41}).end()
	if got := tell(t, twoNICs(), other); errnoOf(got[0]) != unix.EINVAL {
		t.Errorf("another client: %+v", got)
	}
	for name, b := range map[string][]byte{"nothing": nil, "short": {1, 2, 3}, "a length of 0": make([]byte, 20), "no request": begin(header{kind: 5121}).end()} {
		if got := tell(t, twoNICs(), b); len(got) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Several requests of a datagram are answered in their order, up to a bound.
func TestSeveralRequests(t *testing.T) {
	var b []byte
	for range 2 * maxRequests {
		b = append(b, ask(cmdSysGet, 0, nil)...)
	}
	if got := tell(t, twoNICs(), b); len(got) != maxRequests {
		t.Errorf("%d answers", len(got))
	}
}

// No bytes make Answer panic, answer with what is no message, or answer without bound. The fuzzer's bytes
// choose commands, flags and attributes, so that most requests get beyond the first check.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte{1, 3, 0}, false)
	f.Add([]byte{10, 3, 1, 1, 0}, false)
	f.Add([]byte{17, 1, 2, 1, 0, 3, 1, 75, 19}, false)
	f.Add([]byte{15, 0, 1, 69, 200}, false)
	f.Add(ask(cmdResQP, unix.NLM_F_DUMP, func(m *message) { m.u32(attrDevIndex, 0) }), true)
	f.Fuzz(func(t *testing.T, b []byte, raw bool) {
		datagram := b
		if !raw {
			datagram = shaped(b)
		}
		s, n := twoNICs(), 0
		Answer(datagram, 1, &s, func(got []byte) {
			n++
			r, rest, ok := parseRequest(got)
			if !ok || len(rest) != 0 || len(got) > MaxDatagram {
				t.Fatalf("% x is no answer", got)
			}
			if r.kind >= control {
				if _, ok := parseAttributes(r.args); !ok {
					t.Fatalf("% x has no attributes", got)
				}
			}
		})
		if n > 8*maxRequests {
			t.Errorf("%d answers", n)
		}
	})
}

// shaped makes requests of random bytes: a command, flags, a number of attributes, and of each its type
// and value.
func shaped(b []byte) (out []byte) {
	take := func() (v byte) {
		if len(b) > 0 {
			v, b = b[0], b[1:]
		}
		return v
	}
	for len(b) > 0 && len(out) < MaxDatagram {
		c, flags, attrs := take()%30, uint16(take())<<8|unix.NLM_F_ACK, take()%8
		out = append(out, ask(command(c), flags&0x304, func(m *message) {
			for range attrs {
				switch kind, v := int(take()%100), take(); {
				case v < 100:
					m.u32(kind, uint32(v))
				case v < 128:
					m.put(kind, []byte{v})
				default:
					m.text(kind, []string{"uverbs", "rdma_cm", "umad", ""}[v%4])
				}
			}
		})...)
	}
	return out
}
