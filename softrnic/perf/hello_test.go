package perf

import (
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
)

// What a client of the largest configuration asks for fits the private data, and comes back as it was.
func TestHelloRoundTrip(t *testing.T) {
	h := hello{Op: opOpen, Bytes: maxBuffer, Mode: modeEcho, Size: 1 << 20, Recvs: 200, Seed: 1<<64 - 1, Verify: true}
	b := h.encode()
	if len(b) > rdmacm.MaxRequestPrivate {
		t.Errorf("%d bytes, at most %d", len(b), rdmacm.MaxRequestPrivate)
	}
	if got, err := parseHello(b); err != nil || got != h {
		t.Errorf("got %+v, %v; want %+v", got, err, h)
	}
	h = hello{Op: opFence, Owner: 1<<32 - 1, ID: 1<<64 - 1}
	if got, err := parseHello(h.encode()); err != nil || got != h {
		t.Errorf("got %+v, %v; want %+v", got, err, h)
	}
	r := Region{Addr: 1<<64 - 1, RKey: 1<<32 - 1, Len: maxBuffer}
	w := welcome{ID: 1<<64 - 1, Memory: r, Report: r}
	if got, err := parseWelcome(w.encode()); err != nil || got != w {
		t.Errorf("got %+v, %v; want %+v", got, err, w)
	}
	w = welcome{ID: 1<<64 - 1, Memory: r, Locks: Region{RKey: 1<<32 - 1, Len: maxBuffer}, Boot: 1<<64 - 1}
	if got, err := parseWelcome(w.encode()); err != nil || got != w {
		t.Errorf("got %+v, %v; want %+v", got, err, w)
	}
}

func TestHelloIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		` `:                                    "no request",
		`{}`:                                   "operation",
		`{"o":"fence"}`:                        "owner 0",
		`{"o":"who","w":-1}`:                   "no request",
		`{"o":"open","x":1}`:                   "no request",
		`{"o":"open","n":-1}`:                  "bytes of memory",
		`{"o":"open","n":1e12}`:                "no request",
		`{"o":"open","n":268435457}`:           "bytes of memory",
		`{"o":"open","m":"dance"}`:             "mode",
		`{"o":"open","m":"sink"}`:              "receives",
		`{"o":"open","m":"sink","s":1,"r":-1}`: "receives",
		`{"o":"open","m":"sink","s":67108864,"r":100}`:          "receives",
		`{"o":"open","t":"uc1"}`:                                "sink and echo",
		`{"o":"open","m":"echo","s":8,"r":4,"t":"x"}`:           "want rc, uc or ud",
		`{"o":"open","m":"sink","s":1048576,"r":8,"t":"ud64s"}`: "receives",
	} {
		if _, err := parseHello([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one about %q", text, err, want)
		}
	}
}

func TestNoHelloIsForTheRegion(t *testing.T) {
	if h, err := parseHello(nil); err != nil || h != (hello{Op: opOpen, silent: true}) {
		t.Errorf("%+v, %v", h, err)
	}
}

func FuzzHello(f *testing.F) {
	h := hello{Op: opOpen, Bytes: 4096, Mode: modeSink, Size: 64, Recvs: 8, Seed: 3}
	f.Add(h.encode())
	h.Lanes = "ud3s"
	f.Add(h.encode())
	w := welcome{ID: 9, Memory: Region{1, 2, 3}}
	f.Add(w.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := parseHello(b); err == nil {
			if h.Bytes < 0 || h.Bytes > maxBuffer || h.Mode != "" && (h.Size < 1 || h.Recvs < 1 || h.slot()*h.Recvs*h.laneCount() > maxBuffer) {
				t.Errorf("%q gave %+v", b, h)
			}
		}
		if w, err := parseWelcome(b); err == nil && (w.Memory.Len < 0 || w.Report.Len < 0) {
			t.Errorf("%q gave %+v", b, w)
		}
	})
}
