package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// capture makes a capture of n packets with consecutive PSNs; comments are by the place of a packet.
func capture(t testing.TB, n int, comments map[int]string) []byte {
	t.Helper()
	var buf bytes.Buffer
	out, err := pcapng.NewWriter(&buf)
	if err != nil {
		t.Fatal(err)
	}
	id, err := out.AddInterface("cn0 up", pcapng.Ethernet)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		f := wire.Frame{
			IPv4:   wire.IPv4{TTL: 64, Src: addr("10.77.0.2").As4(), Dst: addr("10.77.0.3").As4()},
			UDP:    wire.UDP{SrcPort: 50000, DstPort: 4791},
			Packet: wire.Packet{BTH: wire.BTH{Opcode: wire.RCWriteOnly, DestQP: 7, PSN: wire.PSN(i), PKey: 0xffff}},
		}
		frame := f.AppendTo(nil)
		if err := out.WritePacket(id, int64(i)*1000, frame, comments[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// times returns the times of the packets of a recording, in microseconds, which are their numbers.
func times(t *testing.T, rec *Recording) (list []int) {
	t.Helper()
	in, err := pcapng.NewReader(bytes.NewReader(rec.pcap))
	if err != nil {
		t.Fatal(err)
	}
	var p pcapng.Packet
	for {
		if err := in.Next(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, int(p.Time/1000))
	}
}

func (r *rig) record(body string) (*Recording, int, string) {
	r.t.Helper()
	w := r.ask("POST", "/api/v1/ladders", body)
	var rec Recording
	if w.Code == 200 {
		if err := json.Unmarshal(w.Body.Bytes(), &rec); err != nil {
			r.t.Fatal(err)
		}
		kept, err := r.recorder.find(fmt.Sprint(rec.ID))
		if err != nil {
			r.t.Fatal(err)
		}
		return kept, w.Code, ""
	}
	return nil, w.Code, w.Body.String()
}

func TestRecordingIsAroundTheFirstTouch(t *testing.T) {
	const half = maxKept / 2
	for name, c := range map[string]struct {
		packets     int
		comments    map[int]string
		first, last int
		touched     int
	}{
		"a touch among many":      {5000, map[int]string{2000: "fault f1: dropped", 2010: "x"}, 2000 - half, 2000 + half - 1, 2},
		"a touch at once":         {5000, map[int]string{0: "fault f1: dropped"}, 0, half - 1, 1},
		"few packets":             {10, map[int]string{5: "fault f1: dropped"}, 0, 9, 1},
		"no touch":                {5000, nil, 5000 - half, 4999, 0},
		"more than may be read":   {maxRead + 100, map[int]string{maxRead + 50: "x"}, maxRead - half, maxRead - 1, 0},
		"no touch in few packets": {3, nil, 0, 2, 0},
	} {
		r := newRig(t, nil)
		r.packets = capture(t, c.packets, c.comments)
		rec, code, text := r.record(`{}`)
		if rec == nil {
			t.Fatalf("%s: %d %s", name, code, text)
		}
		got := times(t, rec)
		if got[0] != c.first || got[len(got)-1] != c.last || len(got) != c.last-c.first+1 || !slices.IsSorted(got) {
			t.Errorf("%s: %d packets from %d to %d, want %d to %d", name, len(got), got[0], got[len(got)-1], c.first, c.last)
		}
		if rec.Packets != len(got) || rec.Touched != c.touched || rec.Skipped != c.first {
			t.Errorf("%s: %+v", name, rec)
		}
		if (rec.First > 0) != (c.touched > 0) {
			t.Errorf("%s: the first touched packet is in row %d", name, rec.First)
		}
	}
}

// The fault that is injected while the recording runs is the one that counts, also if it has hit a packet
// before the command has said its name.
func TestRecordingWaitsForTheNewFault(t *testing.T) {
	const half = maxKept / 2
	r := newRig(t, nil)
	comments := map[int]string{1: "fault f1 (loss): dropped", 3000: "fault f2 (loss): dropped", 4500: "fault f1 (loss): dropped"}
	r.packets = capture(t, 5000, comments)
	for _, before := range []bool{true, false} {
		c := recorder{turn: make(chan struct{}, 1)}
		from, to := io.Pipe()
		hold := make(chan struct{})
		c.stream = func(context.Context, string) (io.ReadCloser, error) {
			if before {
				return from, nil
			}
			return io.NopCloser(bytes.NewReader(r.packets)), nil
		}
		if before { // the command answers when all packets have been read, but for the end of the stream
			go func() {
				_, _ = to.Write(r.packets)
				close(hold)
			}()
		} else {
			close(hold)
		}
		rec, err := c.record(t.Context(), &RecordRequest{}, maxInjectRead, func() ([]string, error) {
			<-hold
			if before {
				defer to.Close()
			}
			return []string{"f2"}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		got := times(t, rec)
		if !slices.Contains(got, 3000) || slices.Contains(got, 1) || got[0] < 3000-half || len(got) > maxKept {
			t.Errorf("before %v: %d packets from %d to %d", before, len(got), got[0], got[len(got)-1])
		}
		if rec.First == 0 {
			t.Errorf("before %v: %+v", before, rec)
		}
	}
}

func TestFailedInjectionEndsTheRecording(t *testing.T) {
	from, to := io.Pipe()
	c := recorder{turn: make(chan struct{}, 1), stream: func(ctx context.Context, _ string) (io.ReadCloser, error) {
		context.AfterFunc(ctx, func() { _ = to.CloseWithError(ctx.Err()) })
		return from, nil
	}}
	go func() { _, _ = to.Write(capture(t, 1, nil)) }()
	failed := errors.New("no such host")
	if _, err := c.record(t.Context(), &RecordRequest{Seconds: maxSeconds}, maxRead, func() ([]string, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Errorf("%v, want %v", err, failed)
	}
}

func TestLaddersAreDrawn(t *testing.T) {
	r := newRig(t, nil)
	r.packets = capture(t, 5, map[int]string{2: "fault <f1>: dropped"})
	if _, code, text := r.record(`{"links":["cn0"],"seconds":0.1}`); code != 200 {
		t.Fatal(text)
	}
	for format, want := range map[string]string{
		"":               "fault &lt;f1&gt;: dropped",
		"?format=svg":    "<svg",
		"?format=text":   "RC_WRITE_ONLY",
		"?format=pcapng": "fault <f1>: dropped",
	} {
		w := r.ask("GET", "/api/v1/ladders/1"+format, "")
		if w.Code != 200 || !strings.Contains(w.Body.String(), want) || w.Header().Get("Content-Type") == "" {
			t.Errorf("%q: status %d, %s", format, w.Code, w.Header().Get("Content-Type"))
		}
		if p := w.Header().Get("Content-Security-Policy"); strings.Contains(p, "script-src") || !strings.Contains(p, "default-src 'none'") {
			t.Errorf("policy %q", p)
		}
	}
	if w := r.ask("GET", "/api/v1/ladders/1?format=exe", ""); w.Code != 400 {
		t.Errorf("status %d of an unknown format", w.Code)
	}
	for range maxSaved {
		r.record(`{}`)
	}
	if w := r.ask("GET", "/api/v1/ladders/1", ""); w.Code != 404 {
		t.Errorf("status %d: more than %d recordings are kept", w.Code, maxSaved)
	}
}

func TestRecordingsThatFail(t *testing.T) {
	r := newRig(t, nil)
	for name, c := range map[string]struct {
		packets, body string
		status        int
	}{
		"no capture":    {"", `{}`, 502},
		"nonsense":      {strings.Repeat("x", 100), `{}`, 502},
		"too long":      {"", `{"seconds":11}`, 400},
		"negative":      {"", `{"seconds":-1}`, 400},
		"unknown field": {"", `{"link":"cn0"}`, 400},
		"many links":    {"", `{"links":["` + strings.Repeat(`a","`, maxLinks+1) + `a"]}`, 400},
	} {
		r.packets = []byte(c.packets)
		if _, code, text := r.record(c.body); code != c.status {
			t.Errorf("%s: status %d, want %d: %s", name, code, c.status, text)
		}
	}
}

// Whatever the switch sends, a recording ends, is bounded, and can be drawn.
func FuzzRecording(f *testing.F) {
	whole := capture(f, 20, map[int]string{5: "fault f1: dropped"})
	f.Add(whole, true)
	f.Add(whole[:len(whole)-7], false)
	f.Add([]byte{}, true)
	f.Fuzz(func(t *testing.T, b []byte, named bool) {
		c := recorder{turn: make(chan struct{}, 1), stream: func(context.Context, string) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(b)), nil
		}}
		var do func() ([]string, error)
		if named {
			do = func() ([]string, error) { return []string{"f1"}, nil }
		}
		rec, err := c.record(t.Context(), &RecordRequest{}, maxRead, do)
		if err != nil {
			return
		}
		if rec.Packets > maxKept {
			t.Fatalf("%d packets", rec.Packets)
		}
		m, err := rec.model()
		if err == nil {
			_, err = draw(io.Discard, m, "html")
		}
		if err != nil && !strings.Contains(err.Error(), "lifelines") {
			t.Errorf("the recording cannot be drawn: %v", err)
		}
	})
}
