package rackfile

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"

	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/units"
)

// congestion reads the parameters of congestion control: those of the profile, changed by the keys
// that the file has.
func (d *decoder) congestion(n ast.Node) *congestion.Params {
	algorithm, profile, scope := congestion.AlgorithmDCQCN, congestion.ProfilePaper, congestion.ScopeQP
	entries := []entry{
		set(d, "algorithm", &algorithm, word(congestion.Algorithms()...)),
		set(d, "profile", &profile, word(congestion.Profiles()...)),
		set(d, "np_scope", &scope, word(congestion.Scopes()...)),
	}
	var form congestion.Params
	given := map[string]int64{}
	for _, f := range form.Fields() {
		entries = append(entries, entry{key: f.Name, required: f.Name == maxRateKey, set: func(n ast.Node) {
			if v, ok := text(d, n, f.Name, func(s string) (int64, error) { return ParseCongestion(&f, s) }); ok {
				given[f.Name] = v
			}
		}})
	}
	if !d.sound(func() { d.mapping(n, "congestion", entries) }) {
		return nil
	}
	p, _ := congestion.Profile(profile, given[maxRateKey])
	p.Algorithm, p.Scope = algorithm, scope
	for _, f := range p.Fields() {
		if v, ok := given[f.Name]; ok {
			_ = f.Set(v) // ParseCongestion has checked it
		}
	}
	if err := p.Validate(); err != nil {
		d.errorf(n, "congestion: %v", err)
	}
	return &p
}

// maxRateKey is the parameter that has no default: the rate of the links is not known otherwise.
const maxRateKey = "rp_max_rate"

// ParseCongestion reads the value of a parameter of congestion control with its unit.
func ParseCongestion(f *congestion.Field, s string) (v int64, err error) {
	switch f.Kind {
	case congestion.Rate:
		if v, err = 0, nil; s != "0" {
			v, err = units.ParseRate(s)
		}
	case congestion.Bytes:
		v, err = units.ParseSize(s)
	case congestion.Duration:
		t, e := units.ParseDuration(s)
		v, err = int64(t), e
	case congestion.Number:
		return integer(f.Low, f.High)(s)
	}
	if err == nil && (v < f.Low || v > f.High) {
		err = fmt.Errorf("%s is out of bounds; use a value from %s", s, f.Bounds())
	}
	return v, err
}

func congestionKeys() []key {
	keys := []key{
		{"algorithm", oneOf(congestion.Algorithms()...)},
		{"profile", oneOf(congestion.Profiles()...)},
		{"np_scope", oneOf(congestion.Scopes()...)},
	}
	var form congestion.Params
	for _, f := range form.Fields() {
		s := within(f.Low, f.High)
		switch f.Kind {
		case congestion.Rate:
			if s = rateShape(); f.Low == 0 {
				s = shape{"anyOf": []shape{s, {"const": 0}}}
			}
		case congestion.Bytes:
			s = sizeShape()
			s["maximum"] = f.High
		case congestion.Duration:
			if s = durationShape(); f.Low > 0 {
				s = notZero(s)
			}
		case congestion.Number:
		}
		keys = append(keys, key{f.Name, s})
	}
	return keys
}
