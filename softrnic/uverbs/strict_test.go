package uverbs_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/qpattr"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// logText collects what daemons log.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// take returns what was logged since the last call.
func (l *logText) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// logged is a house whose daemons log to the returned text.
func logged(t *testing.T, lenient bool) (*house, *logText) {
	t.Helper()
	l := new(logText)
	return newHouseOf(t, serve.Limits{}, -1, engine.Limits{}, func(c *serve.Config) {
		c.Log, c.Lenient = slog.New(slog.NewTextHandler(l, nil)), lenient
	}), l
}

// newCells returns a program that makes queue pairs of this type in any state.
func newCells(t *testing.T, h *house, typ uint8) *cells {
	t.Helper()
	c := &cells{client: h.attach(t, 0), service: typ}
	c.pd = do[uverbs.Handle](c.client, uverbs.AllocPD).H
	c.cq = do[uverbs.Handle](c.client, uverbs.CreateCQ, uverbs.CQArgs{CQE: 63, Channel: -1}).H
	return c
}

// badValues are values that a kernel refuses, each at a transition that takes the attribute, with
// the word that the daemon's log has about it.
var badValues = map[string]struct {
	from, to uint8
	named    qpattr.Mask // in addition to what the transition needs
	set      func(m *uverbs.ModifyQPArgs)
	want     unix.Errno
	word     string
}{
	"port 2 of 1":             {0, 1, 0, func(m *uverbs.ModifyQPArgs) { m.Port = 2 }, unix.EINVAL, "port_num 2"},
	"port 0":                  {0, 1, 0, func(m *uverbs.ModifyQPArgs) { m.Port = 0 }, unix.EINVAL, "port_num 0"},
	"P_Key index 2 of 2":      {0, 1, 0, func(m *uverbs.ModifyQPArgs) { m.PKeyIndex = 2 }, unix.EINVAL, "P_Key index 2"},
	"no GRH":                  {1, 2, 0, func(m *uverbs.ModifyQPArgs) { m.Dest.Global = 0 }, unix.EINVAL, "is_global"},
	"port of the path 0":      {1, 2, 0, func(m *uverbs.ModifyQPArgs) { m.Dest.Port = 0 }, unix.EINVAL, "ah_attr.port_num 0"},
	"port of the path 2":      {1, 2, 0, func(m *uverbs.ModifyQPArgs) { m.Dest.Port = 2 }, unix.EINVAL, "ah_attr.port_num 2"},
	"empty GID entry":         {1, 2, 0, func(m *uverbs.ModifyQPArgs) { m.Dest.SourceGID = 1 }, unix.ENODATA, "empty entry"},
	"GID behind the table":    {1, 2, 0, func(m *uverbs.ModifyQPArgs) { m.Dest.SourceGID = 200 }, unix.EINVAL, "sgid_index 200"},
	"unknown destination":     {1, 2, 0, func(m *uverbs.ModifyQPArgs) { m.Dest.DestGID[15] = 99 }, unix.EHOSTUNREACH, "10.77.0.99"},
	"path MTU 0":              {1, 2, 0, func(m *uverbs.ModifyQPArgs) { m.PathMTU = 0 }, unix.EINVAL, "path_mtu 0"},
	"path MTU 6":              {1, 2, 0, func(m *uverbs.ModifyQPArgs) { m.PathMTU = 6 }, unix.EINVAL, "path_mtu 6"},
	"destination of 25 bits":  {1, 2, 0, func(m *uverbs.ModifyQPArgs) { m.DestQPN = 1 << 24 }, unix.EINVAL, "24 bits"},
	"RNR timer 32":            {1, 2, 0, func(m *uverbs.ModifyQPArgs) { m.MinRNRTimer = 32 }, unix.EINVAL, "min_rnr_timer 32"},
	"responder resources":     {1, 2, 0, func(m *uverbs.ModifyQPArgs) { m.MaxDestRdAtomic = 255 }, unix.EINVAL, "max_dest_rd_atomic 255"},
	"alternate path":          {1, 2, qpattr.AltPath, func(*uverbs.ModifyQPArgs) {}, unix.EINVAL, "alternate paths"},
	"timeout 32":              {2, 3, 0, func(m *uverbs.ModifyQPArgs) { m.Timeout = 32 }, unix.EINVAL, "timeout 32"},
	"retries 8":               {2, 3, 0, func(m *uverbs.ModifyQPArgs) { m.RetryCount = 8 }, unix.EINVAL, "retry_cnt 8"},
	"RNR retries 8":           {2, 3, 0, func(m *uverbs.ModifyQPArgs) { m.RNRRetry = 8 }, unix.EINVAL, "rnr_retry 8"},
	"READs in flight":         {2, 3, 0, func(m *uverbs.ModifyQPArgs) { m.MaxRdAtomic = 255 }, unix.EINVAL, "max_rd_atomic 255"},
	"another current state":   {2, 3, qpattr.CurrentState, func(m *uverbs.ModifyQPArgs) { m.Current = 3 }, unix.EINVAL, "cur_qp_state is RTS, but the state is RTR"},
	"no current state":        {2, 3, qpattr.CurrentState, func(m *uverbs.ModifyQPArgs) { m.Current = 77 }, unix.EINVAL, "the state is RTR"},
	"no such state":           {3, 3, 0, func(m *uverbs.ModifyQPArgs) { m.State = 7 }, unix.EINVAL, "no transition"},
	"an attribute that is no": {3, 3, 1 << 25, func(*uverbs.ModifyQPArgs) {}, unix.EOPNOTSUPP, "0x2000000"},
	"another port in SQD":     {4, 4, qpattr.Port, func(m *uverbs.ModifyQPArgs) { m.Port = 2 }, unix.EINVAL, "port_num 2"},
	"no GRH in SQD":           {4, 4, qpattr.Dest, func(m *uverbs.ModifyQPArgs) { m.Dest.Global = 0 }, unix.EINVAL, "is_global"},
}

// Values that a kernel refuses are refused with its errno, the reason is in the daemon's log, and
// nothing has changed.
func TestBadValues(t *testing.T) {
	h, log := logged(t, false)
	for name, v := range badValues {
		c := newCells(t, h, uverbs.TypeRC)
		qp := c.in(v.from)
		before := do[uverbs.QPAttr](c.client, uverbs.QueryQP, uverbs.QueryQPArgs{H: qp})
		m := valid(qp, 9, 14)
		m.Mask, m.State = needs(uverbs.TypeRC, v.from, v.to)|uint32(v.named), v.to
		v.set(&m)
		log.take()
		_, errno := c.raw(uverbs.ModifyQP, uverbs.NoChannel, uverbs.Encode(m))
		text := log.take()
		if errno != v.want || !strings.Contains(text, v.word) || !strings.Contains(text, "modify QP refused") {
			t.Errorf("%s: %v, want %v; the log says %q, want %q", name, errno, v.want, text, v.word)
		}
		if after := do[uverbs.QPAttr](c.client, uverbs.QueryQP, uverbs.QueryQPArgs{H: qp}); after != before {
			t.Errorf("%s: %+v became %+v", name, before, after)
		}
	}
}

// A program that is refused for ever does not fill the log.
func TestRefusalsInTheLogAreBounded(t *testing.T) {
	h, log := logged(t, false)
	c := newCells(t, h, uverbs.TypeRC)
	qp := c.in(0)
	for range 100 {
		if errno := c.modify(qp, 3, qpattr.State); errno != unix.EINVAL {
			t.Fatal(errno)
		}
	}
	text := log.take()
	if n := strings.Count(text, "modify QP refused"); n != 32 || strings.Count(text, "further refusals") != 1 {
		t.Errorf("%d refusals in the log:\n%s", n, text)
	}
}

// A lenient host takes what it can execute: attributes that are missing, and those of other
// services. It refuses values and transitions as before.
func TestLenient(t *testing.T) {
	h, log := logged(t, true)
	for typ := range services {
		c := newCells(t, h, typ)
		qp := c.in(0)
		for to, named := range []qpattr.Mask{
			1: qpattr.State | qpattr.Port | qpattr.PathMTU,
			2: qpattr.State | qpattr.Dest | qpattr.PathMTU | qpattr.DestQPN | qpattr.MaxDestRdAtomic | qpattr.AltPath,
			3: qpattr.State | qpattr.RetryCount | qpattr.Cap,
		} {
			if to == 0 {
				continue
			}
			m := valid(qp, 9, 14)
			m.Mask, m.State, m.Dest.Port, m.Dest.Global = uint32(named), uint8(to), 0, 0
			if _, errno := c.raw(uverbs.ModifyQP, uverbs.NoChannel, uverbs.Encode(m)); errno != 0 {
				t.Errorf("type %d to %v with %v: %v", typ, verbs.QPState(to), named, errno)
			}
		}
		if errno := c.modify(qp, 1, qpattr.State); errno != unix.EINVAL {
			t.Errorf("type %d from RTS to INIT: %v", typ, errno)
		}
		if text := log.take(); strings.Count(text, "modify QP refused") != 1 {
			t.Errorf("the log says %q", text)
		}
	}
}

// While a send queue drains, a query says so, and the queue pair does not go back to RTS; when it
// has drained, it does (IBTA 10.3.1/sqd).
func TestDrainingTakesItsTime(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	h.timeout = 16 // 268 ms
	a, b := h.linked(t, uverbs.TypeRC)
	modify, query := modifier(h, t)
	toSQD := func(m *uverbs.ModifyQPArgs) { m.State = 4 }
	toRTS := func(m *uverbs.ModifyQPArgs) { m.State = 3 }
	a.post(opSend, 0, 8, 0, 0) // the peer has no receive yet, and answers by RNR NAKs
	if errno := modify(a, uverbs.MaskState, toSQD); errno != 0 {
		t.Fatal(errno)
	}
	for end := time.Now().Add(20 * time.Second); query(a).Draining == 0; {
		if errno := modify(a, uverbs.MaskState, toRTS); errno != 0 { // the send was not started before
			t.Fatal(errno)
		}
		if errno := modify(a, uverbs.MaskState, toSQD); errno != 0 || time.Now().After(end) {
			t.Fatal(errno, "the send is not started")
		}
	}
	if errno := modify(a, uverbs.MaskState, toRTS); errno != unix.EINVAL {
		t.Errorf("to RTS while the queue drains: %v", errno)
	}
	b.receive(0, 8)
	a.succeeds()
	if q := query(a); q.State != 4 || q.Draining != 0 {
		t.Errorf("drained: state %d, draining %d", q.State, q.Draining)
	}
	if errno := modify(a, uverbs.MaskState, toRTS); errno != 0 {
		t.Error(errno)
	}
}
