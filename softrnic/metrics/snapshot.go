package metrics

import "reflect"

// Sample is the name, the meaning and the value of one counter.
type Sample struct {
	Name  string `json:"name"`
	Help  string `json:"-"`
	Value uint64 `json:"value"`
}

// Samples returns the counters of c, a pointer to a struct whose uint64 fields have name and help
// tags, in the order of the fields. Samples is for listings, and too slow for a hot path.
func Samples(c any) []Sample {
	v := reflect.ValueOf(c).Elem()
	out := make([]Sample, 0, v.NumField())
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if name := f.Tag.Get("name"); name != "" && f.Type.Kind() == reflect.Uint64 {
			out = append(out, Sample{Name: name, Help: f.Tag.Get("help"), Value: v.Field(i).Uint()})
		}
	}
	return out
}

// Add adds the counters of `from` to those of `to`. T is a struct of counters; see Samples.
func Add[T any](to *T, from T) {
	t, f := reflect.ValueOf(to).Elem(), reflect.ValueOf(&from).Elem()
	for i := range t.NumField() {
		if d := t.Type().Field(i); d.Tag.Get("name") != "" && d.Type.Kind() == reflect.Uint64 {
			t.Field(i).SetUint(t.Field(i).Uint() + f.Field(i).Uint())
		}
	}
}
