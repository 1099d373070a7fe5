package perf

import (
	"bytes"
	"strings"
	"testing"
)

// The request of the largest configuration is parsed to the same values.
func TestRequests(t *testing.T) {
	for _, want := range []request{
		{mode: modeEcho, size: 1 << 20, recvs: 200, seed: 1<<64 - 1, verify: true},
		{mode: modeSink, size: 1, recvs: 2 * MaxDepth, rnrTimer: shortTimer},
		{mode: modeSink, size: 64, recvs: 8, lanes: lanes{ConnRC, 1, true}},
		{mode: modeSink, size: 64, recvs: 8, lanes: lanes{ConnUC, MaxQPs, false}},
		{mode: modeEcho, size: 64, recvs: 8, lanes: lanes{ConnUD, 7, true}},
	} {
		if got, err := parseRequest(want.encode()); err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
	if b := (&request{}).encode(); b != nil {
		t.Errorf("a request for nothing is %x", b)
	}
}

// Only a client that tries again without end asks for a short time between two tries.
func TestTimerOfRetries(t *testing.T) {
	for retries, want := range map[uint8]uint8{0: shortTimer, 7: shortTimer, 1: 0, 3: 0, 6: 0} {
		if got := (&Path{RNRRetry: retries}).timer(); got != want {
			t.Errorf("%d retries: timer %d, want %d", retries, got, want)
		}
	}
}

func TestRequestsAreRefused(t *testing.T) {
	good := request{mode: modeSink, size: 8, recvs: 4, lanes: lanes{ConnUC, 1, false}}
	with := func(at int, v byte) []byte {
		b := good.encode()
		b[at] = v
		return b
	}
	for _, tc := range []struct {
		b    []byte
		want string
	}{
		{nil, "0 bytes"},
		{good.encode()[1:], "19 bytes"},
		{append(good.encode(), 0), "21 bytes"},
		{with(19, 32), "RNR timer 32"},
		{with(0, 0), "mode 0"},
		{with(0, 3), "mode 3"},
		{with(5, 0), "receives"},
		{with(7, 0), "receives"},
		{with(2, 0x80), "receives"},
		{with(6, 0xff), "receives"},
		{with(16, 0), "queue pairs of service 0"},
		{with(16, 4), "queue pairs of service 4"},
		{with(17, 0), "0 queue pairs"},
		{with(17, MaxQPs+1), "65 queue pairs"},
		{(&request{mode: modeSink, size: 1 << 20, recvs: 8, lanes: lanes{ConnUD, 64, true}}).encode(), "receives"},
		{append((&request{mode: modeSink, size: 8, recvs: 8}).encode()[:18], 1, 0), "shared receives"},
	} {
		if w, err := parseRequest(tc.b); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%x: %+v, error %v, want one about %q", tc.b, w, err, tc.want)
		}
	}
}

func FuzzRequest(f *testing.F) {
	w := request{mode: modeSink, size: 64, recvs: 8, seed: 3}
	f.Add(w.encode())
	w.lanes = lanes{ConnUD, 3, true}
	f.Add(w.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := parseRequest(b)
		if err != nil {
			return
		}
		if w.size < 1 || w.size > MaxSize || w.recvs < 1 || w.slot()*w.recvs*w.queues() > maxBuffer {
			t.Errorf("%x gave %+v", b, w)
		}
		again, err := parseRequest(w.encode())
		if err != nil || again != w || !bytes.Equal(again.encode(), w.encode()) {
			t.Errorf("%+v became %+v, %v", w, again, err)
		}
	})
}
