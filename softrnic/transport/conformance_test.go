package transport

import (
	"os"
	"path/filepath"
	"testing"
)

// conformance lists what a reliable connection must do under faults, by the names of the cases of
// roce-sim, a conformance suite for software RoCE, and the scenario scripts that show it here.
var conformance = map[string][]string{
	"send, write, write with immediate, read": {"both_directions", "rnr_write_imm", "zero_length"},
	"compare and swap, success":               {"both_directions", "lost_cas_ack"},
	"partial retry of write":                  {"lost_middle", "reordered"},
	"partial retry of read":                   {"read_lost_middle", "read_lost_last", "read_tail_middle_last", "psn_wrap"},
	"bad response":                            {"bad_response"},
	"ghost ACK":                               {"ghost_ack"},
	"implied NAK":                             {"implied_nak"},
	"implied NAK, retry limit exceeded":       {"implied_nak_exhausted"},
	"local ACK timeout":                       {"lost_first_and_nak", "lost_ack", "retry_resets"},
	"local ACK timeout, limit exceeded":       {"timeout_exhausted"},
	"PSN NAK, retry limit exceeded":           {"nak_exhausted"},
	"R_Key violation":                         {"nak_remote_access"},
	"RNR NAK":                                 {"rnr", "rnr_duplicates"},
	"RNR NAK, limit exceeded":                 {"rnr_retry_exceeded"},
	"remote operational error":                {"local_errors"},
	"unexpected opcode":                       {"opcode_sequence"},
}

// Each case has its scripts.
func TestConformanceIsCovered(t *testing.T) {
	for name, scripts := range conformance {
		for _, s := range scripts {
			if _, err := os.Stat(filepath.Join("testdata", s+".txt")); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
