package insim

import "testing"

// Without coalescing the switch reads one map entry for each ACK; with it, as many as the NIC has put
// into one ACK. What the switch saves is what the link from the server carries more.
func TestAcksOfTheirOwn(t *testing.T) {
	r := ran(t, "ack-coalescing", map[string]string{"clients": "64", "acks": "1,4,16"})
	for _, w := range r.Rows {
		acks, entries, most, bytes := cell(w, "acks"), cell(w, "entriesPerAck"), cell(w, "entriesMost"), cell(w, "ackBytes")
		if each := cell(w, "acksPerRequest") * entries; each < 0.99 || each > 1.01 {
			t.Errorf("an ACK for %v requests: %.3f entries are read for each CAS", acks, each)
		}
		if most > acks || acks == 1 && (entries != 1 || bytes < 60) || acks == 4 && (most != 4 || bytes > 20) {
			t.Errorf("an ACK for %v requests: %.2f entries an ACK, at most %v, %.1f bytes of ACKs a CAS", acks, entries, most, bytes)
		}
	}
}
