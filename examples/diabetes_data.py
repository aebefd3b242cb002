"""Write scikit-learn's diabetes data (442 patients, 10 features) as examples/diabetes.csv; needs no network."""

from pathlib import Path

from sklearn.datasets import load_diabetes

# scikit-learn's names s1 to s6, by its own description of the data.
NAMES = {
    "s1": "total_cholesterol",
    "s2": "ldl",
    "s3": "hdl",
    "s4": "cholesterol_ratio",
    "s5": "log_triglycerides",
    "s6": "glucose",
    "target": "progression",
}


def main() -> None:
    frame = load_diabetes(as_frame=True, scaled=False).frame.rename(columns=NAMES)
    path = Path(__file__).with_name("diabetes.csv")
    frame.to_csv(path, index=False)
    print(f"Wrote {len(frame)} rows to {path}")


if __name__ == "__main__":
    main()
