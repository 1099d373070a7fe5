package redn

import (
	"fmt"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
)

// Disassemble returns one line for each entry of a ring in b. index is the index of the first
// entry. Bytes that are not a valid entry take one block.
func Disassemble(b []byte, index uint32) (lines []string) {
	for len(b) >= sendring.BlockSize {
		n := min(sendring.Blocks(b), sendring.MaxBlocks, len(b)/sendring.BlockSize)
		var e sendring.Entry
		text := ""
		if err := sendring.Parse(b[:n*sendring.BlockSize], &e); err != nil {
			n, text = 1, "?? "+err.Error()
		} else {
			text = Text(&e)
		}
		lines = append(lines, fmt.Sprintf("%5d  %s", index, text))
		b = b[n*sendring.BlockSize:]
		index += uint32(n)
	}
	return lines
}

// Text describes an entry on one line.
func Text(e *sendring.Entry) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%-10v", e.Op)
	switch e.Op {
	case sendring.Wait:
		fmt.Fprintf(&s, " CQ %d, %d completions", e.Object, e.Count)
	case sendring.Enable, sendring.RecvEnable:
		fmt.Fprintf(&s, " QP %#x up to %d", e.Object, e.Count)
	case sendring.CmpSwap:
		fmt.Fprintf(&s, " %#x: %#x -> %#x", e.RemoteAddr, e.Compare, e.SwapAdd)
	case sendring.MaskedCmpSwap:
		fmt.Fprintf(&s, " %#x: %#x of bits %#x -> %#x of bits %#x", e.RemoteAddr, e.Compare, e.CmpMask, e.SwapAdd, e.SwapMask)
	case sendring.FetchAdd, sendring.MaskedFetchAdd:
		fmt.Fprintf(&s, " %#x + %#x", e.RemoteAddr, e.SwapAdd)
	case sendring.NOP:
		if e.Segments > 1 {
			fmt.Fprintf(&s, " of %d segments, id %#x", e.Segments, e.QPN)
		}
	default:
		if e.RemoteAddr != 0 {
			fmt.Fprintf(&s, " %#x", e.RemoteAddr)
		}
	}
	for _, g := range e.SGL[:e.NSGE] {
		fmt.Fprintf(&s, " [%#x +%d]", g.Addr, g.Length)
	}
	for _, f := range []struct {
		flag sendring.Flags
		name string
	}{{sendring.Fence, "fence"}, {sendring.Signalled, "signalled"}, {sendring.Solicited, "solicited"}} {
		if e.Flags&f.flag != 0 {
			s.WriteString(" " + f.name)
		}
	}
	return strings.TrimRight(s.String(), " ")
}
