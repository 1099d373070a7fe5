package packettrace

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/telemetry"
)

// cell is a record of a frame with an opcode and a PSN, of a number of packets.
func cell(number uint64, op wire.Opcode, psn wire.PSN, packets uint16, length uint32) []byte {
	f := wire.Frame{}
	f.IPv4 = wire.IPv4{Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2}, TTL: 64}
	f.BTH = wire.BTH{Opcode: op, DestQP: 0x11, PSN: psn}
	head := append(f.AppendTo(nil), make([]byte, HeadLen)...)[:HeadLen]
	r := Record{Number: number, Epoch: 1, Length: length, Packets: packets, Taken: 1, Head: head}
	return r.AppendTo(nil)
}

// READ responses have the PSNs of the other side's requests, and say nothing about the order of the sender's own.
func TestResponsesAreNotNumbered(t *testing.T) {
	var cells []byte
	for i := range wire.PSN(50) {
		cells = append(cells, cell(uint64(2*i)+1, wire.RCWriteOnly, 900_000+i, 1, 100)...)
		cells = append(cells, cell(uint64(2*i)+2, wire.RCReadResponseOnly, 100+i, 1, 100)...)
	}
	tr := New(1)
	tr.Add(cells)
	for _, f := range tr.Report(telemetry.ByFlow, 1).Flows {
		if f.Late != 0 || f.Again != 0 {
			t.Errorf("%d packets are late, %d again", f.Late, f.Again)
		}
	}
}

// A frame with more packets than its bytes allow is none that a switch has recorded: the memory's owner has written it,
// and must not cost the reader time and memory.
func TestForgedRecordsAreRefused(t *testing.T) {
	var r Record
	for packets, want := range map[uint16]bool{1: true, 4: true, 63: true, 64: false, 65535: false} {
		if got := r.Parse(cell(1, wire.RCWriteOnly, 1, packets, 1000)); got != want {
			t.Errorf("%d packets in 1000 bytes: %v", packets, got)
		}
	}
	if r.Parse(cell(1, wire.RCWriteOnly, 1, 1, mostLength+1)) {
		t.Error("a frame that is too long is taken")
	}
}
