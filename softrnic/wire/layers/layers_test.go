package layers_test

import (
	"testing"

	"github.com/google/gopacket"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	roce "github.com/rdmalab/rdmalab/softrnic/wire/layers"
)

// A packet that is truncated anywhere after its BTH gives an error layer, and no panic.
func TestTruncated(t *testing.T) {
	for op := range 256 {
		f := sample(wire.Opcode(op), 0)
		data := f.AppendTo(nil)
		const bth = 14 + 20 + 8
		for n := 1; n < len(data)-bth; n++ {
			p := gopacket.NewPacket(data[bth:bth+n], roce.LayerTypeBTH, gopacket.Default)
			icrc := p.Layer(roce.LayerTypeICRC)
			if p.ErrorLayer() == nil && icrc == nil {
				t.Fatalf("%v cut to %d bytes: neither an ICRC nor an error", wire.Opcode(op), n)
			}
		}
	}
}

// A header can be decoded alone, too, as gopacket.NewPacket allows for every layer type.
func TestStandalone(t *testing.T) {
	reth := []byte{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3}
	p := gopacket.NewPacket(append(reth, 1, 2, 3, 4), roce.LayerTypeRETH, gopacket.Default)
	h, ok := p.Layer(roce.LayerTypeRETH).(*roce.RETH)
	if !ok || h.VA != 1 || h.RKey != 2 || h.DMALength != 3 {
		t.Errorf("RETH %+v", h)
	}
	c, ok := p.Layer(roce.LayerTypeICRC).(*roce.ICRC)
	if !ok || c.Value != 0x04030201 {
		t.Errorf("ICRC %+v", c)
	}
}
