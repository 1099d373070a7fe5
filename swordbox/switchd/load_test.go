package switchd

import (
	"log"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/swordbox/apps/serialize"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/record"
	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// loadable is a switch of a rack with a state folder, whose program can be changed.
func loadable(t *testing.T, program string, paths spec.Paths, before ...func(pipeline.Program)) (a asker, rack *spec.Rack) {
	t.Helper()
	rack, err := spec.Parse([]byte(strings.NewReplacer("PROGRAM", program, "CONNECT", "cm").Replace(boxFile)))
	if err != nil {
		t.Fatal(err)
	}
	logger := log.New(t.Output(), "", 0)
	first, err := begun(rack, paths)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := recordOf(first, paths, logger)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := configOf(first, rec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // when the switch has ended
		if err := rec.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg.Described, cfg.Load = rack, loader(rack, paths, logger)
	for _, f := range before {
		f(cfg.Program)
	}
	c, _, _ := running(t, cfg)
	return asker{t, c}, rack
}

// A running switch gets the program with rules, and gives it up again. What it was told survives its restart.
func TestLoadProgram(t *testing.T) {
	paths := spec.Paths{Dir: t.TempDir()}
	a, rack := loadable(t, spec.ProgramForward, paths)
	const rule = "id=s server=ms0 action=steer steer=both"
	for range 2 { // once more with what the first time has left in the record
		var i ProgramInfo
		a.must("PUT", "/program", ProgramText{Name: spec.ProgramSwordBox, Rules: []string{rule}}, &i)
		if i.Name != spec.ProgramSwordBox || i.Described != spec.ProgramForward || i.Rules != 1 || len(i.Addresses) == 0 {
			t.Errorf("%+v", i)
		}
		a.must("POST", "/rules", RuleText{Rule: "id=t server=cn0 action=track"}, nil)
		a.must("PUT", "/program", ProgramText{Name: spec.ProgramSwordBox, Rules: []string{rule}}, &i)
		if i.Rules != 1 {
			t.Errorf("the same program with other rules: %+v", i)
		}
		after, err := begun(rack, paths)
		if err != nil || after.Switch.Program != spec.ProgramSwordBox {
			t.Errorf("a restarted switch would run %q: %v", after.Switch.Program, err)
		}
		i = ProgramInfo{}
		a.must("PUT", "/program", ProgramText{Name: spec.ProgramForward}, &i)
		if i.Name != spec.ProgramForward || i.Rules != 0 || len(i.Addresses) != 0 {
			t.Errorf("%+v", i)
		}
		if after, err := begun(rack, paths); err != nil || after != rack {
			t.Errorf("a restarted switch would run %q: %v", after.Switch.Program, err)
		}
	}
	a.refused(http.StatusBadRequest, "the switch has forward and swordbox", "PUT", "/program", ProgramText{Name: "chess"})
	a.refused(http.StatusBadRequest, "rules are for program swordbox", "PUT", "/program", ProgramText{Name: spec.ProgramForward, Rules: []string{rule}})
	a.refused(http.StatusBadRequest, "hosts: [ms0 cn0]", "PUT", "/program", ProgramText{Name: spec.ProgramSwordBox, Rules: []string{"server=ms9 action=steer"}})
	if err := os.WriteFile(paths.Program(), []byte("chess"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := begun(rack, paths); err == nil || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("a program that there is not: %v", err)
	}
}

// A switch that was told to run a program begins with it and its rules.
func TestRestartWithLoadedProgram(t *testing.T) {
	paths := spec.Paths{Dir: t.TempDir()}
	t.Run("first life", func(t *testing.T) {
		a, _ := loadable(t, spec.ProgramForward, paths)
		a.must("PUT", "/program", ProgramText{Name: spec.ProgramSwordBox, Rules: []string{"id=kept server=ms0 action=steer"}}, nil)
	})
	a, _ := loadable(t, spec.ProgramForward, paths)
	var list []rules.Rule
	a.must("GET", "/rules", nil, &list)
	if len(list) != 1 || list[0].ID != "kept" {
		t.Errorf("%v", list)
	}
	var i ProgramInfo
	a.must("PUT", "/program", ProgramText{Name: spec.ProgramForward}, &i)
	if i.Name != spec.ProgramForward {
		t.Errorf("%+v", i)
	}
}

// A program whose connections only it can go on with stays, and says so.
func TestLoadIsRefused(t *testing.T) {
	paths := spec.Paths{Dir: t.TempDir()}
	rec, err := openRecord(paths.Record())
	if err != nil {
		t.Fatal(err)
	}
	rack, err := spec.Parse([]byte(strings.NewReplacer("PROGRAM", spec.ProgramSwordBox, "CONNECT", "cm").Replace(boxFile)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rec.Move(record.Row{Client: rack.Hosts[1].IPv4, Server: rack.Hosts[0].IPv4, ClientQPN: 5, ServerQPN: 6}); err != nil {
		t.Fatal(err)
	}
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	a, _ := loadable(t, spec.ProgramSwordBox, paths)
	a.refused(http.StatusConflict, "only this program knows how to go on", "PUT", "/program", ProgramText{Name: spec.ProgramForward})
	c, _, _ := boxed(t, spec.ProgramForward, "cm", nil)
	a = asker{t, c}
	a.refused(http.StatusConflict, "keeps its program", "PUT", "/program", ProgramText{Name: spec.ProgramSwordBox})
}

// A connection that was recorded because its requests might move, and did not move, goes on without the program; the next one with
// this record does not take it for one of a former life, whose client it would have to send away.
func TestUnloadFreesTheRecord(t *testing.T) {
	a, _ := loadable(t, spec.ProgramSwordBox, spec.Paths{Dir: t.TempDir()}, func(p pipeline.Program) {
		row := &conntrack.Row{ID: 3, Generation: 1, ReqQPN: 5, RespQPN: 6}
		row.Requester, row.Responder = netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.1")
		if !p.(*serialize.Program).Own().Moving(row) {
			t.Error("not recorded")
		}
	})
	for range 2 {
		a.must("PUT", "/program", ProgramText{Name: spec.ProgramForward}, nil)
		a.must("PUT", "/program", ProgramText{Name: spec.ProgramSwordBox}, nil)
	}
}
