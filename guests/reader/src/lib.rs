//! The role `reader`: counts production and watches machine states.
struct Reader;
impl plant_role::Role for Reader {
    fn start() -> Result<Self, String> {
        Ok(Self)
    }
}
impl plant_role::Timers for Reader {
    fn on_timer(&mut self, name: &str, _: i64, _: u32) -> Result<(), String> {
        plant_role::info!("{name}");
        plant_role::db::with_transaction(|_| Ok::<_, plant_role::db::Explained>(())).map_err(String::from)
    }
}
impl plant_role::Samples for Reader {
    fn on_samples(&mut self, _: &[plant_role::opc::Sample]) -> Result<(), String> {
        Ok(())
    }
}
plant_role::export_role!(Reader: timers, samples);
