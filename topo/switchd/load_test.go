package switchd

import (
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/journal"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// filesOf are the files of a switch whose rack has this state folder.
func filesOf(dir string) files {
	return files{journal: filepath.Join(dir, "switch.record"), program: filepath.Join(dir, "switch.program")}
}

// loadable returns a switch of a rack with a state folder, whose program can be changed.
func loadable(t *testing.T, program string, own files, before ...func(pipeline.Program)) (a caller, rack *rackfile.Rack) {
	t.Helper()
	rack, err := rackfile.Parse([]byte(strings.NewReplacer("PROGRAM", program, "CONNECT", "cm").Replace(boxFile)))
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	first, err := begun(rack, own)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := journalOf(first, own, logger)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := configOf(first, rec, links{}, Place{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // runs after the switch has ended
		if err := rec.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg.Described, cfg.Load = rack, loader(func() *rackfile.Rack { return rack }, nil, own, logger)
	for _, f := range before {
		f(cfg.Program)
	}
	c, _, _ := running(t, cfg)
	return caller{t, c}, rack
}

// A running switch loads the program with rules, and then the one without. The program that an
// operator loaded survives a restart.
func TestLoadProgram(t *testing.T) {
	own := filesOf(t.TempDir())
	a, rack := loadable(t, rackfile.ProgramForward, own)
	const rule = "id=s server=ms0 action=steer steer=both"
	for range 2 { // the second time with the journal of the first
		var i ProgramInfo
		a.must("PUT", "/program", ProgramText{Name: rackfile.ProgramSwordBox, Rules: []string{rule}}, &i)
		if i.Name != rackfile.ProgramSwordBox || i.Described != rackfile.ProgramForward || i.Rules != 1 || len(i.Addresses) == 0 {
			t.Errorf("%+v", i)
		}
		a.must("POST", "/rules", RuleText{Rule: "id=t server=cn0 action=track"}, nil)
		a.must("PUT", "/program", ProgramText{Name: rackfile.ProgramSwordBox, Rules: []string{rule}}, &i)
		if i.Rules != 1 {
			t.Errorf("the same program with other rules: %+v", i)
		}
		after, err := begun(rack, own)
		if err != nil || after.Switch.Program != rackfile.ProgramSwordBox {
			t.Errorf("a restarted switch would run %q: %v", after.Switch.Program, err)
		}
		i = ProgramInfo{}
		a.must("PUT", "/program", ProgramText{Name: rackfile.ProgramForward}, &i)
		if i.Name != rackfile.ProgramForward || i.Rules != 0 || len(i.Addresses) != 0 {
			t.Errorf("%+v", i)
		}
		if after, err := begun(rack, own); err != nil || after != rack {
			t.Errorf("a restarted switch would run %q: %v", after.Switch.Program, err)
		}
	}
	a.refused(http.StatusBadRequest, "the switch has forward and swordbox", "PUT", "/program", ProgramText{Name: "chess"})
	a.refused(http.StatusBadRequest, "rules are for program swordbox", "PUT", "/program", ProgramText{Name: rackfile.ProgramForward, Rules: []string{rule}})
	a.refused(http.StatusBadRequest, "hosts: [ms0 cn0]", "PUT", "/program", ProgramText{Name: rackfile.ProgramSwordBox, Rules: []string{"server=ms9 action=steer"}})
	if err := os.WriteFile(own.program, []byte("chess"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := begun(rack, own); err == nil || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("a program that there is not: %v", err)
	}
}

// Rules whose text is too long for the journal are a mistake of the operator, by whichever request
// they come; the switch says the limit, and the rules in force stay.
func TestRulesTooLongForTheJournal(t *testing.T) {
	service := strings.Repeat("s", rules.MaxService)
	var texts []string
	for i := range rules.MaxRules {
		id, from := fmt.Sprintf("rule-with-an-id-of-32-bytes-%04d", i), math.MaxUint64-uint64(i+1)<<12+1
		texts = append(texts, fmt.Sprintf("id=%s server=ms0 action=move range=%d-%d rkey=0xffffffff service=%s", id, from, from+8, service))
	}
	const want = "the switch can store 65520: use fewer rules or shorter names"
	a, _ := loadable(t, rackfile.ProgramForward, filesOf(t.TempDir()))
	a.refused(http.StatusBadRequest, want, "PUT", "/program", ProgramText{Name: rackfile.ProgramSwordBox, Rules: texts})
	a.must("PUT", "/program", ProgramText{Name: rackfile.ProgramSwordBox, Rules: texts[:1]}, nil)
	a.refused(http.StatusBadRequest, want, "PUT", "/program", ProgramText{Name: rackfile.ProgramSwordBox, Rules: texts})
	a.refused(http.StatusBadRequest, want, "PUT", "/rules", RuleTexts{texts})
	var inForce []rules.Rule
	if a.must("GET", "/rules", nil, &inForce); len(inForce) != 1 {
		t.Errorf("%d rules are in force, want the former one", len(inForce))
	}
	a.must("PUT", "/rules", RuleTexts{texts[:227]}, nil) // 288 bytes each
	a.refused(http.StatusBadRequest, want, "POST", "/rules", RuleText{Rule: texts[227]})
	a.must("DELETE", "/rules/rule-with-an-id-of-32-bytes-0007", nil, nil)
	a.must("POST", "/rules", RuleText{Rule: texts[227]}, nil)
}

// A restarted switch begins with the program and the rules that an operator loaded.
func TestRestartWithLoadedProgram(t *testing.T) {
	own := filesOf(t.TempDir())
	t.Run("first incarnation", func(t *testing.T) {
		a, _ := loadable(t, rackfile.ProgramForward, own)
		a.must("PUT", "/program", ProgramText{Name: rackfile.ProgramSwordBox, Rules: []string{"id=kept server=ms0 action=steer"}}, nil)
	})
	a, _ := loadable(t, rackfile.ProgramForward, own)
	var list []rules.Rule
	a.must("GET", "/rules", nil, &list)
	if len(list) != 1 || list[0].ID != "kept" {
		t.Errorf("%v", list)
	}
	var i ProgramInfo
	a.must("PUT", "/program", ProgramText{Name: rackfile.ProgramForward}, &i)
	if i.Name != rackfile.ProgramForward {
		t.Errorf("%+v", i)
	}
}

// A program that has moved requests of open connections cannot be replaced, and the error gives
// that reason.
func TestLoadIsRefused(t *testing.T) {
	own := filesOf(t.TempDir())
	rec, err := openJournal(own.journal)
	if err != nil {
		t.Fatal(err)
	}
	rack, err := rackfile.Parse([]byte(strings.NewReplacer("PROGRAM", rackfile.ProgramSwordBox, "CONNECT", "cm").Replace(boxFile)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rec.Move(journal.Flow{Client: rack.Hosts[1].IPv4, Server: rack.Hosts[0].IPv4, ClientQPN: 5, ServerQPN: 6}); err != nil {
		t.Fatal(err)
	}
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	a, _ := loadable(t, rackfile.ProgramSwordBox, own)
	a.refused(http.StatusConflict, "only this program can continue them", "PUT", "/program", ProgramText{Name: rackfile.ProgramForward})
	c, _, _ := boxed(t, rackfile.ProgramForward, "cm", nil)
	a = caller{t, c}
	a.refused(http.StatusConflict, "keeps its program", "PUT", "/program", ProgramText{Name: rackfile.ProgramSwordBox})
}

// A connection is in the journal because its requests might move, but none moved. It goes on after
// the program is unloaded, and the next program with this journal does not treat it as a stale
// flow, whose packets draw a fatal NAK.
func TestUnloadFreesTheJournal(t *testing.T) {
	a, _ := loadable(t, rackfile.ProgramSwordBox, filesOf(t.TempDir()), func(p pipeline.Program) {
		flow := &conntrack.Flow{ID: 3, Generation: 1, Ends: conntrack.Ends{ReqQPN: 5, RespQPN: 6}}
		flow.Requester, flow.Responder = netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.1")
		if !p.(*swordbox.Program).Own().Moving(flow) {
			t.Error("not recorded")
		}
	})
	for range 2 {
		a.must("PUT", "/program", ProgramText{Name: rackfile.ProgramForward}, nil)
		a.must("PUT", "/program", ProgramText{Name: rackfile.ProgramSwordBox}, nil)
	}
}
