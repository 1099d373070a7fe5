package memservice

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
)

// Lengths of the bodies of a join request without former owners, and of a take request, in bytes.
const joinLen, takeLen = 20, 28

// requests and answers are one message of each kind, with the largest values.
func requests() []request {
	work := bytes.Repeat([]byte{7}, maxWork)
	return []request{
		{kind: kindConnect, conn: math.MaxUint64, owner: math.MaxUint32, bytes: maxOwn, work: work},
		{kind: kindConnect},
		{kind: kindEnd, conn: math.MaxUint64},
		{kind: kindFence, owner: math.MaxUint32},
		{kind: kindWho, owner: 1},
		{kind: kindRetire, owner: math.MaxUint32},
		{kind: kindRetire},
		{kind: kindReserve, owner: 1},
		{kind: kindDisconnectOthers, owner: 1},
		{kind: kindDisconnect, owner: math.MaxUint32},
		{kind: kindFenceTo, owner: math.MaxUint32},
		{kind: kindFenceTo},
		{kind: kindJoin, conn: math.MaxUint64, owner: math.MaxUint32, shared: math.MaxUint64 - 1, former: []uint32{math.MaxUint32 - 1}},
		{kind: kindJoin, owner: 1, shared: 2},
		{kind: kindJoin, owner: 1, shared: 2, former: []uint32{3, 4, 5, 6, 7, 8, 9, 10}},
		{kind: kindTake, owner: math.MaxUint32, number: math.MaxUint32 - 1, table: table{math.MaxUint64, maxTable}, value: math.MaxUint64},
	}
}

func answers() []answer {
	r := Region{Addr: math.MaxUint64, RKey: math.MaxUint32, Len: math.MaxInt}
	return []answer{
		{kind: kindConnect, memory: Memory{memgrant.Grant{Region: r, Locks: r, Conn: math.MaxUint64, Boot: math.MaxUint64}, bytes.Repeat([]byte{7}, maxWork)}},
		{kind: kindConnect, memory: Memory{Grant: memgrant.Grant{Conn: 1}}},
		{kind: kindEnd},
		{kind: kindFence},
		{kind: kindFenceTo},
		{kind: kindDisconnect},
		{kind: kindJoin},
		{kind: kindWho, holder: Holder{Peer: "10.77.0.3", QPs: maxPassive, Fenced: true}},
		{kind: kindWho, holder: Holder{Peer: "fd77::3", QPs: 1}},
		{kind: kindWho},
		{kind: kindRetire, owner: math.MaxUint32},
		{kind: kindReserve, owner: 1},
		{kind: kindDisconnectOthers, owner: 1},
		{kind: kindTake, index: maxTable - 1},
		{kind: kindRefused, code: refusedFenced},
	}
}

// Every message fits into the private data, and is decoded to the same values; shorter and longer
// ones are refused.
func TestMessages(t *testing.T) {
	for _, want := range requests() {
		b := want.encode()
		if len(b) > cm.MaxRequestPrivate {
			t.Errorf("%v: %d bytes, at most %d", want.kind, len(b), cm.MaxRequestPrivate)
		}
		if got, err := parseRequest(b); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
		if _, err := parseRequest(b[:len(b)-1]); err == nil && len(want.work) == 0 {
			t.Errorf("%v: a short request is taken", want.kind)
		}
		if _, err := parseRequest(append(b, 0)); err == nil && (want.kind != kindConnect || len(want.work) == maxWork) {
			t.Errorf("%v: a long request is taken", want.kind)
		}
	}
	for _, want := range answers() {
		b, room := want.encode(), rdmacm.MaxAnswer
		if want.kind == kindConnect {
			room = cm.MaxReplyPrivate
		}
		if len(b) > room {
			t.Errorf("%v: %d bytes, at most %d", want.kind, len(b), room)
		}
		if got, err := parseAnswer(b); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
		if _, err := parseAnswer(b[:len(b)-1]); err == nil && len(want.memory.Work) == 0 {
			t.Errorf("%v: a short answer is taken", want.kind)
		}
	}
}

func TestMalformedMessages(t *testing.T) {
	for text, want := range map[string]string{
		"\x01":                     "at least 2",
		"{\"o\":\"open\"}":         "version 123",
		"\x02\x01":                 "version 2",
		"\x01\x00":                 "unknown kind 0",
		"\x01\x06\x00":             "unknown refused",
		"\x01\x03\x00\x00\x00\x00": "owner 0",
		"\x01\x04\x00\x00\x00\x00": "owner 0",
		"\x01\x08" + strings.Repeat("\x00", joinLen):                                                 "owner 0",
		"\x01\x0a" + strings.Repeat("\x00", 7) + "\x01" + strings.Repeat("\x00", takeLen-9) + "\x01": "owner 0",
		"\x01\x0a" + strings.Repeat("\x00", takeLen-1) + "\x01":                                      "number 0",
		"\x01\x0a" + strings.Repeat("\x01", takeLen):                                                 "at most 16777216 words",
		"\x01\x0a" + strings.Repeat("\x00", takeLen):                                                 "a value other than 0",
		"\x01\x01" + strings.Repeat("\x00", 12) + "\x10\x00\x00\x01":                                 "268435457 bytes of memory",
	} {
		if _, err := parseRequest([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one about %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"":         "at least 2",
		"\x00\x01": "version 0",
		"\x01\x0d": "unknown kind 13",
		"\x01\x01" + strings.Repeat("\xff", connectedLen):        "a region of",
		"\x01\x04\x00\xff\xff\xff\xff" + strings.Repeat("x", 16): "connections",
	} {
		if _, err := parseAnswer([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one about %q", text, err, want)
		}
	}
}

func TestNoPrivateDataAreAConnect(t *testing.T) {
	if r, err := parseRequest(nil); err != nil || !reflect.DeepEqual(r, request{kind: kindConnect, silent: true}) {
		t.Errorf("%+v, %v", r, err)
	}
}

// Any message that is decoded has values in bounds, and is encoded to the same bytes.
func FuzzMessages(f *testing.F) {
	for _, r := range requests() {
		f.Add(r.encode())
	}
	for _, a := range answers() {
		f.Add(a.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseRequest(b); err == nil && !r.silent {
			if r.bytes > maxOwn || len(r.work) > maxWork || !bytes.Equal(r.encode(), b) {
				t.Errorf("%x gave request %+v", b, r)
			}
		}
		if a, err := parseAnswer(b); err == nil {
			if a.memory.Len < 0 || a.memory.Locks.Len < 0 || a.holder.QPs < 0 || a.holder.QPs > maxPassive || len(a.memory.Work) > maxWork {
				t.Errorf("%x gave answer %+v", b, a)
			}
			if again, err := parseAnswer(a.encode()); err != nil || !reflect.DeepEqual(again, a) {
				t.Errorf("%+v became %+v, %v", a, again, err)
			}
		}
	})
}

// FuzzStructured encodes requests and answers with random values: values in bounds are decoded
// again, others are refused.
func FuzzStructured(f *testing.F) {
	f.Add(uint8(1), uint64(1), uint32(2), uint32(3), []byte("work"))
	f.Add(uint8(4), uint64(0), uint32(9), uint32(0), []byte{})
	f.Fuzz(func(t *testing.T, k uint8, conn uint64, owner, n uint32, work []byte) {
		r := request{kind: kind(k%5) + kindConnect}
		switch r.kind {
		case kindConnect:
			r.conn, r.owner, r.bytes, r.work = conn, owner, n, work
		case kindEnd:
			r.conn = conn
		default:
			r.owner = owner
		}
		if len(r.work) == 0 {
			r.work = nil
		}
		valid := r.bytes <= maxOwn && len(r.work) <= maxWork && (owner != 0 || r.kind != kindFence && r.kind != kindWho)
		if got, err := parseRequest(r.encode()); (err == nil) != valid || valid && !reflect.DeepEqual(got, r) {
			t.Errorf("%+v became %+v, %v", r, got, err)
		}
	})
}
