package rdmacm

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// The reason and the answer in a REJ are decoded to the same values. If there is no room for both,
// the reason is cut, never the answer.
func TestRejectCarriesReasonAndAnswer(t *testing.T) {
	for _, n := range []int{0, 1, 82, 126, 127, 128, 200} {
		for _, answer := range [][]byte{nil, {1}, {1, 6, 2}, bytes.Repeat([]byte{0xff}, MaxAnswer)} {
			reason := strings.Repeat("x", n)
			b := serviceOf("memory").reject(reason, answer)
			rej := &mad.REJ{Reason: mad.ReasonConsumer}
			if copy(rej.Private[:], b) < len(b) {
				t.Errorf("%d and %d bytes: %d do not fit", n, len(answer), len(b))
			}
			var got *RejectError
			if err := serviceOf("memory").rejected(rej); !errors.As(err, &got) {
				t.Fatal(err)
			}
			room := min(cm.MaxRejectPrivate, mad.REJPrivate-2-len(answer))
			if want := reason[:min(n, room)]; n > 0 && got.Reason != want || !bytes.Equal(got.Private, answer) {
				t.Errorf("%d and %d bytes: reason of %d bytes, answer %x", n, len(answer), len(got.Reason), got.Private)
			}
		}
	}
}
