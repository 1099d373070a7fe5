package switchd

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/fault"
)

// keptFaults are the fault rules on trunks, which outlive the switch: they are faults of the network
// between switches, and a switch that is started again does not heal it. Rules that end after some hits
// (Count) are not kept, because the hits end with the switch.
type keptFaults struct {
	path  string // of the file; "": none are kept
	slow  int    // factor of slow motion
	trunk func(link string) bool
	log   *slog.Logger

	saving sync.Mutex
	saved  []byte // what the file has
}

// keptRule is a rule in the file.
type keptRule struct {
	fault.Rule
	Until time.Time `json:"until,omitzero"` // of a rule with For, when it ends
}

// maxKept bounds the file in bytes: more than maxRules rules take.
const maxKept = 1 << 20

// keeps reports whether a rule is kept.
func (k *keptFaults) keeps(r *fault.Rule) bool {
	return k.path != "" && r.Count == 0 && k.trunk(r.Link)
}

// read returns the rules of the file; false if there is none, or if it is damaged.
func (k *keptFaults) read() (rules []fault.Rule, ok bool) {
	if k.path == "" {
		return nil, false
	}
	data, err := os.ReadFile(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false
	}
	var list []keptRule
	if err == nil && len(data) <= maxKept {
		err = json.Unmarshal(data, &list)
	}
	if err != nil || len(data) > maxKept {
		k.log.Warn("the file of faults on trunks is damaged, and counts for nothing", "file", k.path, "error", err)
		return nil, false
	}
	for _, r := range list {
		if r.For > 0 {
			if r.For = time.Until(r.Until) / time.Duration(max(1, k.slow)); r.For <= 0 {
				continue
			}
		}
		rules = append(rules, r.Rule)
	}
	return rules, true
}

// save writes the rules that are kept, if they are others than before.
func (k *keptFaults) save(list []fault.Status) {
	kept := []keptRule{}
	for i := range list {
		r := keptRule{Rule: list[i].Rule}
		if list[i].State != fault.Active || !k.keeps(&r.Rule) {
			continue
		}
		if r.For > 0 {
			r.Until = time.Now().Add(list[i].Remaining * time.Duration(max(1, k.slow))).Round(time.Millisecond)
		}
		kept = append(kept, r)
	}
	data, err := json.Marshal(kept)
	if err == nil && !bytes.Equal(data, k.saved) {
		part := k.path + ".part"
		if err = os.WriteFile(part, data, 0o600); err == nil {
			err = os.Rename(part, k.path)
		}
	}
	if err != nil {
		k.log.Error("faults on trunks end with the switch, because they could not be written", "file", k.path, "error", err)
		return
	}
	k.saved = data
}
