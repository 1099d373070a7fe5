package mad

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// captured calls f with every MAD of the captures of package wire.
func captured(tb testing.TB, f func(file string, frame *wire.Frame)) (n int) {
	tb.Helper()
	eachFrame(tb, "cm_*.pcap", func(file string, frame *wire.Frame) {
		if frame.BTH.DestQP == 1 {
			f(file, frame)
			n++
		}
	})
	return n
}

// firstPSNs returns the PSN of the first request to each queue pair of a capture.
func firstPSNs(tb testing.TB, file string) map[wire.QPN]wire.PSN {
	tb.Helper()
	first := map[wire.QPN]wire.PSN{}
	eachFrame(tb, file, func(_ string, f *wire.Frame) {
		_, seen := first[f.BTH.DestQP]
		if op := f.BTH.Opcode; !seen && (op == wire.RCSendOnly || op == wire.RCReadRequest) {
			first[f.BTH.DestQP] = f.BTH.PSN
		}
	})
	return first
}

// eachFrame calls f with every RoCEv2 frame of some captures.
func eachFrame(tb testing.TB, pattern string, f func(file string, frame *wire.Frame)) {
	tb.Helper()
	const fileHeader, recordHeader = 24, 16
	names, err := filepath.Glob("../testdata/golden/" + pattern)
	if err != nil {
		tb.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		for b = b[fileHeader:]; len(b) > 0; {
			size := int(binary.LittleEndian.Uint32(b[8:]))
			var frame wire.Frame
			if wire.ParseFrame(b[recordHeader:recordHeader+size], &frame) == nil {
				f(filepath.Base(name), &frame)
			}
			b = b[recordHeader+size:]
		}
	}
}

// Every MAD that two Linux kernels sent decodes and is encoded to the same bytes again (IBTA
// 12.6.7, 12.6.11, 13.4.2, 13.4.4, 16.7, 16.7.2).
func TestGolden(t *testing.T) {
	const want = 23
	seen := map[Attr]int{}
	n := captured(t, func(file string, f *wire.Frame) {
		var h Header
		m, err := Parse(f.Payload, &h)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			return
		}
		seen[h.Attr]++
		if got := Append(nil, h.TID, m); !bytes.Equal(got, f.Payload) {
			t.Errorf("%s: %v is written as\n%x, was\n%x", file, h.Attr, got, f.Payload)
		}
	})
	if n != want || len(seen) != 6 {
		t.Errorf("%d datagrams %v, want %d of 6 messages", n, seen, want)
	}
}

// The fields of rping's connection have the values of the capture's description and of the kernel's
// defaults (IBTA 12.6.5, 12.6.8, 12.6.9, 12.6.10).
func TestGoldenFields(t *testing.T) {
	a, b := netip.MustParseAddr("192.168.77.1"), netip.MustParseAddr("192.168.77.2")
	got := map[Attr]Message{}
	captured(t, func(file string, f *wire.Frame) {
		if file == "cm_rping_v4.pcap" {
			var h Header
			m, err := Parse(f.Payload, &h)
			if err != nil {
				t.Fatal(err)
			}
			got[h.Attr] = m
		}
	})
	req, rep := got[AttrREQ].(*REQ), got[AttrREP].(*REP)
	if d := cmp.Diff(&REQ{
		LocalID: 0x6cdd514d, Service: PortService(SpaceTCP, 7174), LocalGUID: 0x505400fffe770001, QPN: 0x11,
		ResponderResources: 1, InitiatorDepth: 1, RemoteTimeout: 20, LocalTimeout: 20, PSN: 0x67da27, Retry: 7, RNRRetry: 7,
		PKey: 0xffff, MTU: 3, MaxCMRetries: 15, Private: req.Private,
		Primary: Path{
			LocalLID: 0xffff, RemoteLID: 0xffff, LocalGID: a.As16(), RemoteGID: b.As16(), FlowLabel: 0x688d6, HopLimit: 64, AckTimeout: 19,
		},
	}, req); d != "" {
		t.Errorf("REQ: -want +got\n%s", d)
	}
	if d := cmp.Diff(&REP{
		LocalID: 0xd83d790b, RemoteID: req.LocalID, QPN: 0x111, PSN: 0x04e273, ResponderResources: 1, InitiatorDepth: 1,
		AckDelay: 15, RNRRetry: 7, LocalGUID: 0x505400fffe770002,
	}, rep); d != "" {
		t.Errorf("REP: -want +got\n%s", d)
	}
	// Each side sends from the PSN that the other side's message names (IBTA 12.7.31).
	if first := firstPSNs(t, "cm_rping_v4.pcap"); first[rep.QPN] != rep.PSN || first[req.QPN] != req.PSN {
		t.Errorf("first PSNs %v by destination queue pair", first)
	}
	var ip IPData
	if err := ip.Parse(req.Private[:]); err != nil {
		t.Fatal(err)
	}
	if want := (IPData{SrcPort: 0xb930, Src: a, Dst: b}); ip != want {
		t.Errorf("RDMA-CM header %+v, want %+v", ip, want)
	}
	if out := ip.AppendTo(nil); !bytes.Equal(out, req.Private[:IPDataLen]) {
		t.Errorf("RDMA-CM header is written as %x", out)
	}
	if rtu := got[AttrRTU].(*RTU); rtu.LocalID != req.LocalID || rtu.RemoteID != rep.LocalID {
		t.Errorf("RTU %+v", rtu)
	}
	if dreq := got[AttrDREQ].(*DREQ); dreq.QPN != rep.QPN {
		t.Errorf("DREQ %+v", dreq)
	}
}
