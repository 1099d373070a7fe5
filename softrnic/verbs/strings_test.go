package verbs

import (
	"fmt"
	"testing"
)

// Every value has a name of its own, and an invalid value prints without a panic.
func TestNames(t *testing.T) {
	for kind, list := range map[string][]fmt.Stringer{
		"type":   {RC, UC, UD},
		"state":  {StateReset, StateInit, StateRTR, StateRTS, StateSQD, StateSQE, StateError},
		"wr":     {OpSend, OpSendImm, OpSendInv, OpWrite, OpWriteImm, OpRead, OpCmpSwap, OpFetchAdd, OpLocalInv, OpBindMW, OpRegMR, OpMaskedCmpSwap, OpMaskedFetchAdd, OpAtomicWrite, OpFlush},
		"wc":     {WCSend, WCWrite, WCRead, WCCmpSwap, WCFetchAdd, WCLocalInv, WCRecv, WCRecvWriteImm, WCBindMW, WCRegMR, WCMaskedCmpSwap, WCMaskedFetchAdd, WCAtomicWrite, WCFlush},
		"async":  {EventQPFatal, EventQPReqErr, EventQPAccessErr, EventCommEst, EventSQDrained, EventCQErr, EventPortActive, EventPortErr, EventDeviceFatal, EventSRQLimit, EventQPLastWQE},
		"beyond": {QPType(99), QPState(99), WROpcode(99), WCOpcode(99), AsyncKind(99)},
	} {
		seen := map[string]bool{}
		for _, v := range list {
			s := v.String()
			if s == "" || seen[s] {
				t.Errorf("%s: %q is empty or there twice", kind, s)
			}
			seen[s] = true
		}
	}
	if got := Status(99).String(); got != "unknown" {
		t.Errorf("status 99: %q", got)
	}
	if StateRTS.String() != "RTS" || OpWriteImm.String() != "WRITE_IMM" || QPState(99).String() != "QPState(99)" {
		t.Error("names")
	}
}
